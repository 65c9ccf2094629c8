"""Settings: named, checked before any work, refused in one sentence."""

import pytest
import torch

from tlm.cli.command import descriptions
from tlm.errors import InputError
from tlm.settings.presets import OVERRIDDEN, names, resolve
from tlm.settings.sections import SECTIONS, Preset
from tlm.training.input.texts import Special
from tlm.training.model import build


@pytest.mark.parametrize("name", names())
def test_every_preset_is_valid_and_says_where_each_section_comes_from(name):
    preset = resolve(name)
    assert preset.name == name
    settings = {f"{section}.{field}" for section, fields in SECTIONS.items() for field in fields.model_fields}
    assert SECTIONS.keys() <= preset.source.keys() <= SECTIONS.keys() | settings
    assert Preset.model_validate_json(preset.model_dump_json()) == preset


def test_small_learns_as_the_paper_s_table_b1_says_for_scierc():
    preset = resolve("small")
    assert (preset.train.lr, preset.train.weight_decay, preset.train.warmup_steps) == (1e-4, 0.01, 10_000)
    stage2 = preset.finetune
    assert (stage2.steps, stage2.batch, stage2.lr, stage2.weight_decay) == (30_000, 32, 2e-5, 0)
    assert stage2.warmup_share * stage2.steps == 3000


def test_every_setting_is_explained():
    for section, fields in SECTIONS.items():
        meanings = descriptions(fields)
        assert list(meanings) == list(fields.model_fields), section
        assert all(meanings.values()), section


def test_overrides_are_read_by_the_type_of_their_setting():
    overrides = [
        "train.rho1=4", "train.lr=1e-3", "train.mask_internal=false", "train.betas=0.8,0.95", "finetune.reset_head=no",
        "model.architecture=bert", "train.schedule = cosine", "train.steps=900", "train.steps=1000",
    ]  # fmt: skip
    preset = resolve("pocket", overrides)
    assert (preset.train.rho1, preset.train.lr, preset.train.mask_internal) == (4, 0.001, False)
    assert (preset.train.betas, preset.finetune.reset_head) == ((0.8, 0.95), False)
    assert (preset.model.architecture, preset.train.schedule, preset.train.steps) == ("bert", "cosine", 1000)
    assert resolve("pocket", ["train.rho1=inf"]).train.rho1 == "inf"
    assert resolve("pocket", ["train.rho1=0"]).train.rho1 == 0


def test_overrides_do_not_change_the_preset_for_the_next_one():
    before = resolve("tiny")
    resolve("tiny", ["train.rho1=17"])
    assert resolve("tiny") == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.roh1=4", "setting 'train.roh1' is unknown; did you mean 'train.rho1'?"),
        ("rho1=4", "setting 'rho1' is unknown; did you mean 'train.rho1'?"),
        ("name=x", "setting 'name' is unknown"),
        ("train.rho1", "setting 'train.rho1' has no value; expected section.name=value, such as train.rho1=4"),
        ("train.rho1=", "has no value"),
        ("train.rho1=-1", "setting train.rho1=-1 cannot be: expected 'inf' or greater than or equal to 0"),
        ("train.rho1=1.5", "setting train.rho1=1.5 cannot be"),
        ("train.rho2=-1", "setting train.rho2=-1 cannot be"),
        ("train.steps=0", "setting train.steps=0 cannot be: expected greater than 0"),
        (
            "train.steps=9999999999",
            "setting train.steps=9999999999 cannot be: expected less than or equal to 1000000000",
        ),
        ("finetune.epochs=1e19", "setting finetune.epochs=1e19 cannot be: expected less than or equal to 1000000000"),
        *(
            (f"{name}=9999999999", f"setting {name}=9999999999 cannot be: expected less than or equal to 1000000000")
            for name in ("finetune.steps", "model.max_length", "model.positions")
        ),
        ("retrieve.top_k=0", "setting retrieve.top_k=0 cannot be: expected greater than 0"),
        ("train.lr=0", "setting train.lr=0 cannot be"),
        ("train.lr=nan", "setting train.lr=nan cannot be: expected a finite number"),
        ("train.lr=inf", "setting train.lr=inf cannot be: expected a finite number"),
        ("train.mask_share=1", "setting train.mask_share=1 cannot be"),
        ("train.betas=0.9", "setting train.betas=0.9 cannot be: expected two numbers, such as 0.9,0.98"),
        ("train.betas=0.9,0.9,0.9", "expected two numbers, such as 0.9,0.98"),
        ("train.internal_loss=mean", "expected 'normalised' or 'sum'"),
        ("train.steps=400", "train.warmup_steps is 400 and train.steps 400; expected fewer steps of warm-up"),
        ("model.heads=3", "model.hidden is 128 and model.heads 3; expected an even width for each head"),
        ("train.external_length=129", "train.external_length is 129 and the model has 128 positions"),
        ("model.positions=127", "model.max_length is 128 and model.positions 127; expected max_length to be"),
        ("model.token_types=3", "setting model.token_types=3 cannot be: expected less than or equal to 2"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(override, message):
    with pytest.raises(InputError) as caught:
        resolve("pocket", ["train.warmup_steps=400", override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_words_of_the_library_are_in_the_sentence():
    with pytest.raises(InputError, match=r"^setting train\.lr=fast cannot be: expected a valid number$"):
        resolve("pocket", ["train.lr=fast"])


def test_what_is_overridden_says_so():
    assert resolve("small", ["train.lr=1e-3"]).source["train.lr"] == OVERRIDDEN
    assert OVERRIDDEN not in resolve("small").source.values()


def test_positions_may_outnumber_the_tokens_of_a_text():
    model = resolve("pocket", ["model.positions=512", "train.external_length=300"]).model
    assert (model.max_length, model.reach) == (128, 512)
    assert resolve("pocket").model.reach == 128


def test_mini_has_ten_million_parameters():
    mini = resolve("mini")
    special = Special(0, 1, 2, 3, 4)
    config = build.with_task(build.make_config(mini.model, mini.tokenizer.vocab_size, special), ["a", "b"], "toy")
    with torch.device("meta"):
        assert build.parameter_count(build.build(config, 0)) == pytest.approx(10.6e6, rel=0.01)


def test_an_unknown_preset_gets_the_nearest_name():
    with pytest.raises(InputError, match="preset 'smal' is unknown; did you mean 'small'"):
        resolve("smal")
