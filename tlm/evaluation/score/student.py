"""Student's t for whole degrees of freedom, without scipy: the report's image does not carry 130 MB for one number."""

from math import cos, pi, sin, sqrt, tan


def t_quantile(confidence: float, degrees: int) -> float:
    """The t with P(-t < T < t) = `confidence`, to the last digits of a float."""
    low, high = 0.0, pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return sqrt(degrees) * tan(low)


def _within(angle: float, degrees: int) -> float:
    """The finite series in angle = atan(t / sqrt(degrees)) (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = degrees % 2
    term, total = cos(angle) if odd else 1.0, 0.0
    for k in range(odd, degrees - 1, 2):
        total += term
        term *= cos(angle) ** 2 * (k + 1) / (k + 2)
    return (angle + sin(angle) * total) * 2 / pi if odd else sin(angle) * total
