"""What sources hold is counted, and refused if the budget is too small for it."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from converted import converted, refusal, saved

from fcl.convert import run
from fcl.convert.contract import Budget
from fcl.convert.files import InputFile
from fcl.convert.plink.trio import Trio
from fcl.convert.registry import open_source
from fcl.convert.rereading import RereadableFile
from fcl.convert.tables import parquet
from fcl.convert.tables.columns import ColumnOptions, Roles
from fcl.convert.tables.contract import ColumnSelection
from fcl.errors import BudgetError
from fcl.memory.allowance import within
from tests.convert.conftest import write_parquet

TOTAL = 40_000


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources have 40 KB."""
    divide = run.divide_memory
    small = Budget(TOTAL, 1 << 16)
    monkeypatch.setattr(run, "divide_memory", lambda *given: (small, divide(*given)[1]))


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


def _batches(path: Path, columns: ColumnSelection, total: int = 8 << 20) -> list[int]:
    budget = Budget(total, 40_000)
    table = parquet._ParquetFile(RereadableFile(InputFile(path), None), budget)
    return [len(batch) for batch in table.read(columns, last=True)]


def test_groups_of_rows_and_long_texts_in_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path, n = tmp_path / "a.parquet", 2000
    for texts in (
        [f"{i:04}" + "x" * 996 for i in range(n)],
        [f"{i % 2}" + "x" * 999 for i in range(n)],
    ):
        write_parquet(path, {"v": np.arange(n), "id": texts})
        sizes = _batches(path, ColumnSelection([0], [1]))
        assert sum(sizes) == n and 5 <= max(sizes) <= 10  # texts are copied
        assert max(_batches(path, ColumnSelection([0], []))) == 40_000 // 32
        found = converted(path, name="id")
        assert found.group["obs/name"][:].tolist() == texts
    columns = {f"n{i}": np.random.default_rng(i).normal(size=20_000) for i in range(8)}
    write_parquet(path, columns, row_group_size=10_000)
    with pytest.raises(
        BudgetError, match=r"pages of 8 columns in a group of 10,000 rows \(.* KiB\)"
    ):
        _batches(path, ColumnSelection(range(8), []), 1 << 20)
    assert sum(_batches(path, ColumnSelection(range(2), []), 1 << 20)) == 20_000


@pytest.mark.timeout(60)
def test_roles_of_very_many_columns() -> None:
    """In time that is linear in their number: quadratic searches of half a million take half an hour."""
    n = 500_000
    table = cast(Any, SimpleNamespace(name="t", columns=[f"c{j}" for j in range(n)]))
    table.index_columns, table.width, table.date_parts = {7}, n, {}
    roles = Roles.of(table, ColumnOptions(y="c9", groups="c0"))
    assert roles.x == [j for j in range(n) if j not in (0, 7, 9)]
    assert (roles.y, roles.groups, roles.left_out) == (9, 0, [7])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_wide_tables_are_read_in_few_blocks(kind: str, tmp_path: Path) -> None:
    """Blocks take time for each column; those of one-hot columns are as small as their entries."""
    n, columns = 60, 900
    x = np.random.default_rng(1).integers(0, 10, (n, columns))
    texts = np.array(list("abcdefghij"))[x]
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        table = {f"c{j}": texts[:, j] for j in range(columns)}
        path = write_parquet(tmp_path / "t.parquet", table)
    else:
        lines = [",".join(f"c{j}" for j in range(columns)), *map(",".join, texts)]
        path = saved(tmp_path, "t.csv", "\n".join(lines).encode())
    budget = Budget(64 << 20, 1 << 19)
    source = open_source([InputFile(path)], "table" if kind == "csv" else kind, {}, budget)
    blocks = list(source.blocks(budget))
    assert sum(map(len, blocks)) == n and len(blocks) <= {"csv": 5, "parquet": 2}[kind]
    names = list(source.layout.names or ())
    rows = np.concatenate([block.x.to_dense() for block in blocks])  # type: ignore[union-attr]
    expected = [[texts[i, int(name[1:-2])] == name[-1] for name in names] for i in range(n)]
    np.testing.assert_array_equal(rows, np.array(expected, np.float32))


def test_lists_that_inflate(tmp_path: Path) -> None:
    """A list of names of some kilobytes is read up to the budget."""
    names = tmp_path / "names.txt.gz"
    names.write_bytes(gzip.compress(b"name\n" * (1 << 20)))
    assert len(InputFile(names).read_text()) == 5 << 20
    with (
        within("2MiB"),
        pytest.raises(BudgetError, match=r"names.txt.gz: .* bytes of text, or more"),
    ):
        InputFile(names).read_text()


def test_samples_that_inflate(tmp_path: Path) -> None:
    (tmp_path / "x.bed").write_bytes(b"\x6c\x1b\x01" + bytes(100))
    lines = "".join(f"0 s{i} 0 0 1 1\n" for i in range(500_000))
    (tmp_path / "x.fam").write_bytes(gzip.compress(lines.encode(), 1))
    (tmp_path / "x.bim").write_text("1 v 0 1 A C\n")
    with within("64MiB"), pytest.raises(BudgetError, match=r"x\.fam: .* lines, or more, need"):
        Trio.open(InputFile(tmp_path / "x.bed"), Budget(1 << 40, 1 << 16))
