"""The demo's data: an ordinary corpus and an ordinary task, made of text that the installed packages carry."""
