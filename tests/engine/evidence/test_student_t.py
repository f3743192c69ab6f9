import pytest
from scipy.stats import t

from engine.evidence.student_t import distribution, quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 17, 39, 60, 200, 1999, 5000])
def test_quantiles_are_those_of_another_implementation(degrees: int) -> None:
    for probability in (0.01, 0.05, 0.3, 0.5, 0.9, 0.95, 0.975, 0.999):
        assert quantile(probability, degrees) == pytest.approx(t.ppf(probability, degrees), rel=1e-3, abs=1e-8)
        if degrees < 2000:
            assert distribution(quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-8)


def test_what_has_no_quantile_is_refused() -> None:
    with pytest.raises(ValueError, match="inside"):
        quantile(1.0, 3)
    with pytest.raises(ValueError, match="degree of freedom"):
        quantile(0.9, 0)
