"""Charts: well-formed drawings of the figures in the tables."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from bench import charts, figures, rounds
from bench.workloads import registry

_SVG = "{http://www.w3.org/2000/svg}"


def _found(**products: float) -> rounds.Found:
    def of(latency_ms: float) -> dict[str, figures.Repetitions]:
        raw = {"latency_ms": latency_ms, "ten_appends_ms": 10.0, "append_ms": 1.0}
        return {"W1": figures.Repetitions(raws=(raw,))}

    others = [rounds.ProductFound(label=label, workloads=of(value)) for label, value in products.items()]
    return rounds.Found(workloads=of(20.0), products=others)


def _drawn(found: rounds.Found) -> dict[str, ET.Element]:
    drawn = charts.drawn(found, [registry.WORKLOADS["W1"]], "Ours <1>")
    return {name: ET.fromstring(chart.svg) for name, chart in drawn.items()}


def _bars(chart: ET.Element) -> list[float]:
    return [float(bar.get("width", "")) for bar in chart.findall(f"{_SVG}rect")][1:]


def _texts(chart: ET.Element) -> list[str]:
    return [text.text or "" for text in chart.findall(f"{_SVG}text")]


def test_a_bar_is_as_long_as_its_share_of_the_limit() -> None:
    """A line that uses two thirds of its limit is drawn with 0.67."""
    chart = _drawn(_found())["bars"]

    assert _texts(chart)[1:] == ["W1 latency, p50", "0.67"]
    assert len(_bars(chart)) == 1


def test_products_have_bars_beside_each_other() -> None:
    """Each product's bar is as long as its figure, and any characters in its name are drawn as text."""
    chart = _drawn(_found(Twice=40.0, Half=10.0))["w1-latency-ms"]
    ours, twice, half = _bars(chart)

    assert twice == 2 * ours == 4 * half
    assert "Ours <1>" in _texts(chart)


def test_distant_figures_get_a_logarithmic_scale() -> None:
    """Figures far apart get a logarithmic scale, which shows the shortest bar beside one a thousand times as long."""
    chart = _drawn(_found(Slow=20_000.0))["w1-latency-ms"]
    ours, slow = _bars(chart)

    assert "logarithmic" in _texts(chart)[0]
    assert 0 < slow / 12 < ours < slow / 3


def test_no_chart_is_drawn_without_figures() -> None:
    """Without figures no chart is drawn, and without products no comparison."""
    assert _drawn(rounds.Found(workloads={"W1": figures.Repetitions()})) == {}
    assert set(_drawn(_found())) == {"bars"}
