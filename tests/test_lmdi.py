import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.lmdi import component_effects, factor_effect, log_mean

positive = st.floats(min_value=1e-6, max_value=1e12)


@given(positive, positive)
def test_log_mean_lies_between_its_arguments(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert low * (1 - 1e-12) <= log_mean(a, b) <= high * (1 + 1e-12)


@given(positive, st.floats(min_value=-2e-4, max_value=2e-4))
def test_log_mean_is_smooth_where_its_arguments_meet(b: float, distance: float) -> None:
    a = b * (1 + distance)
    # High precision reference: (a - b) / log1p(d) with d exact.
    d = (a - b) / b
    expected = b if d == 0 else (a - b) / math.log1p(d)
    assert log_mean(a, b) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_log_mean_refuses_what_has_no_logarithm(a: float, b: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        log_mean(a, b)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=6))
def test_the_effects_of_all_factors_add_up_to_the_change(factors: list[tuple[float, float]]) -> None:
    # Work in logarithms to keep the product in range, then scale to something like a time in ns.
    logs = [sum(math.log(f[side]) for f in factors) for side in (0, 1)]
    scale = 15.0 - max(logs)
    total = (math.exp(logs[0] + scale), math.exp(logs[1] + scale))
    effects = [factor_effect(total, f) for f in factors]
    tolerance = 1e-9 * (max(total) + sum(abs(e) for e in effects))
    assert math.fsum(effects) == pytest.approx(total[1] - total[0], abs=tolerance)


parts = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(min_value=0, max_value=1e6), min_size=1)


@given(parts, parts, positive, positive)
def test_the_effects_of_all_components_add_up_to_their_factor(
    before: dict[str, float], after: dict[str, float], t1: float, t2: float
) -> None:
    factor = (math.fsum(before.values()), math.fsum(after.values()))
    if min(factor) < 1e-3:
        return
    effects = component_effects((t1, t2), before, after, factor)
    assert set(effects) == set(before) | set(after)
    tolerance = 1e-9 * (sum(abs(e) for e in effects.values()) + abs(t2 - t1))
    # A part too small to change the sum as a float has an effect that the factor's cannot show.
    tolerance += 1e-15 * max(t1, t2)
    assert math.fsum(effects.values()) == pytest.approx(factor_effect((t1, t2), factor), abs=tolerance)


def test_a_component_that_vanishes_is_credited_with_its_whole_cost() -> None:
    effects = component_effects((10.0, 5.0), {"load": 6.0, "math": 4.0}, {"math": 5.0}, (10.0, 5.0))
    assert effects["load"] == pytest.approx(-6.0)
    assert effects["math"] == pytest.approx(1.0)
