"""What sources hold is counted, and refused if the budget is too small for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted import converted, refusal, saved

from fcl.convert import run
from fcl.convert.contract import Budget
from fcl.convert.files import InputFile
from fcl.convert.rereading import RereadableFile
from fcl.convert.tables import parquet
from fcl.convert.tables.contract import Selection
from fcl.errors import BudgetError

TOTAL = 40_000


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources have 40 KB."""
    shares = run._Shares.of

    def of(*arguments: Any) -> Any:
        return run._Shares(Budget(TOTAL, 1 << 16), shares(*arguments).store)

    monkeypatch.setattr(run._Shares, "of", of)


def many(n: int, line: str) -> bytes:
    return "".join(line.format(i) for i in range(n)).encode()


@pytest.mark.usefixtures("small_budget")
@pytest.mark.parametrize(
    ("name", "line", "options", "message"),
    [
        ("a.csv", "{0},g{0}\n", {"no_header": True, "groups": "2"}, "different texts of the columns"),
        ("a.tsv", "AC\tg{}\n", {"x": "1", "groups": "2"}, "the different texts of labels, groups"),
        ("a.fa", ">r{}\nAC\n", {"groups": r"header:r\d+"}, "the different texts of labels, groups"),
        ("a.fa", ">r{}\nAC\n", {"label": "other:2"}, "--label: the names in the 300 lines of "),
        ("a.bed", "c{}\t0\t1\n", {"genome": "other", "length": 1}, "other: the names of 300 contigs"),
        ("a.svm", "1 {}:1\n", {"names": "other", "zero_based": "yes"}, "other: 301 names of columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_many_texts(
    name: str, line: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Few texts are accepted, so that the refusals are about their number."""
    others = {"label": "r{}\t1\n", "genome": ">c{}\nAC\n", "names": "n{}\n"}
    kind = next((kind for kind in others if "other" in str(options.get(kind))), "")
    given = {key: str(value).replace("other", f"{tmp_path}/other") if key == kind else value
             for key, value in options.items()}  # fmt: skip
    other = saved(tmp_path, "other", many(300, others.get(kind, "x")))
    path = saved(tmp_path, name, many(300, line))
    found = refusal(path, **given)
    assert message in found.replace(f"{tmp_path}/", "") and "raise --memory by at least" in found
    path.write_bytes(many(20, line))
    other.write_bytes(many(20, others.get(kind, "x")))
    assert converted(path, **given).summary.rows == 20


def _batches(path: Path, columns: Selection, total: int = 8 << 20) -> list[int]:
    budget = Budget(total, 40_000)
    table = parquet._ParquetFile(RereadableFile(InputFile(path), None), budget)
    return [len(batch) for batch in table.batches(columns, last=True)]


def test_groups_of_rows_and_long_texts_in_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as arrow_parquet

    path, n = tmp_path / "a.parquet", 2000
    for texts in (
        [f"{i:04}" + "x" * 996 for i in range(n)],
        [f"{i % 2}" + "x" * 999 for i in range(n)],
    ):
        arrow_parquet.write_table(pa.table({"v": np.arange(n), "id": texts}), path)
        sizes = _batches(path, Selection([0], [1]))
        assert sum(sizes) == n and 5 <= max(sizes) <= 10  # texts are copied
        assert max(_batches(path, Selection([0], []))) == 40_000 // 32
        found = converted(path, name="id")
        assert found.group["obs/name"][:].tolist() == texts
    columns = {f"n{i}": np.random.default_rng(i).normal(size=20_000) for i in range(8)}
    arrow_parquet.write_table(pa.table(columns), path, row_group_size=10_000)
    with pytest.raises(
        BudgetError, match=r"pages of 8 columns in a group of 10,000 rows \(.* KiB\)"
    ):
        _batches(path, Selection(range(8), []), 1 << 20)
    assert sum(_batches(path, Selection(range(2), []), 1 << 20)) == 20_000
