"""What is wrong with CSV, TSV and Parquet files: one message each."""

from __future__ import annotations

import decimal
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted import refusal, saved

from fcl.convert.tables import delimited
from tests.convert.conftest import Refuse, write_parquet

pa = pytest.importorskip("pyarrow")

LATE = "1,2\n" * 20_000
GENES = "".join(f"n{i},  {'ACGT'[i % 4]}CCA,{i % 2}\n" for i in range(9))


def row(number: int, text: str) -> str:
    return rf"^a.csv: row {number} \(the header is row 1\): {text}"


#: The content of a.csv, options, and the message.
CSV: dict[str, tuple[Any, dict[str, Any], str]] = {
    "late text": (f"a,b\n{LATE}1,x\n{LATE}", {}, row(20002, "the column 'b' holds ")),
    "late number": ("a,b\n1,x\n" + "1,y\n" * 5000 + "1,2\n", {}, row(5003, "the column 'b' holds")),
    "late text, no header": (f"{LATE}1,x\n", {"no_header": True},
        "^a.csv: row 20001: the column '2' holds the"),
    "late short row": (f"a,b\n{LATE}1\n", {}, row(20002, "expected 2 values, got 1: '1'")),
    "late gap": (f"a,b\n{LATE}1,\n", {}, row(20002, "the column 'b' has no value")),
    "long row": ("a,b\n1,2,3\n", {}, row(2, "expected 2 values, got 3: '1,2,3'")),
    "gap among texts": ("a,b\n1,x\n1,NA\n", {},
        row(3, "the column 'b' has no value; give --missing mean, which makes .* or drop$")),
    "gap in y": ("a,b\n1,2\n1,\n", {"y": "b", "missing": "mean"},
        row(3, "the column 'b' has no value; give --missing-target drop,")),
    "-inf": ("a,b\n1,2\n1,-inf\n", {}, row(3, "the column 'b' is infinite")),
    "1e999": ("a,b\n1,1e999\n", {}, row(2, "the column 'b' is infinite")),
    "names twice": ("a,a\n1,2\n", {}, "a.csv.* the columns 1 and 2 have the same name 'a'"),
    "header alone": ("a,b\n", {}, "a.csv.* has the names of columns, but no rows"),
    "header without an end": ("a,b", {}, "a.csv.* has the names of columns, but no rows"),
    "empty": ("", {}, "a.csv.* expected a table, got an empty file"),
    "blank": ("\ufeff\n \n", {}, "a.csv.* expected a table, got an empty file"),
    "no header": ("1.5,2.5\n3.5,4\n", {}, "a.csv.* got numbers such as 1.5; give --no-header"),
    "latin-1": (b"a,b\n1,\xff\n", {}, "a.csv.* line 2 is not UTF-8 text, .*iconv .*a.csv > "),
    "late latin-1": (b"a\n" + b"z\n" * 600_000 + b"\xff\n", {}, row(600002, "the column 'a'")),
    "quotation mark": ('a,b\n1,"x\n3,z\n', {},
        r"a.csv: has an odd number of quotation marks \(1\)|row 2 .* a quotation mark is not closed"),
    "categories": ("a\n" + "\n".join(f"v{i}" for i in range(9)), {"max_categories": 8},
        "the column 'a' has more than 8 different texts, such as 'v0'; leave it out with --x '!a', or"),
    "sequences": ("s,y\nACGN,1\nacgt,2\nTTA,1\n", {"max_categories": 2, "y": "y"},
        "column alone: --x 's'; otherwise leave it out with --x '!s', or raise --max-categories"),
    "texts": ("t,y\n" + "".join(f"the car of man no {i},cars\n" for i in range(9)), {"max_categories": 8},
        "'t' has .*; count the words of texts first .*, or leave it out with --x '!t', or raise"),
    "sequences beside names": (f"name,dna,y\n{GENES}", {"max_categories": 8, "y": "y"},
        "'name' has more than 8.*alone: --x 'dna'"),
    "no y": ("a,b\n1,2\n", {"y": "bb"}, "^--y: a.csv has no column 'bb'"),
    "large integer": ("a,b\n1,2\n2,9007199254740993\n", {}, row(3, "the column 'b' holds 9007")),
    "large group": ("a,g\n1,9007199254740993\n", {"groups": "g"},
        row(2, r"the column 'g' holds 9007199254740993, an integer beyond 2\^53")),
    "empty lines": ("\n\na,b\n\n1,2\n\n3\n", {}, row(3, "expected 2 values, got 1")),
    # another parser of pyarrow reads wide tables
    "carriage return": ("a,b,c\n1,2\r3,4\n5,6,7\n", {}, "expected 3 values, got 2|control character 0d"),
    "other digits": ("a,b\n\u0663,1\n5,2\n", {}, "holds the number '5', but the text '\u0663' before"),
    "unusual blanks": ("a,b\n\u00a05,1\n5,2\n", {}, "and unusual blanks around values"),
    "decimal point": ("a;b\n1,50;2\n2.75;3\n", {"decimal": ","}, "holds the text '2.75'"),
    "decimal comma": ('a,b\n"1,50",2\n"-2,75",3\n', {},
        "numbers with commas or other marks, such as '1,50'; give --decimal , "),
    "many decimal commas": ("a;b\n1,51;2\n-2,75;3\n", {"decimal": ".", "max_categories": 1},
        "numbers with commas or other marks, such as '1,51'; give --decimal , "),
    "decimal comma or thousands": ("a;b\n1,500;2\n-2,750;3\n", {},
        "such as '1,500'; give --decimal , if commas mark decimals, --thousands , if they"),
    "decimal comma after a number": ('a,b\n1,2\n"2,5",3\n', {},
        row(3, "the column 'a' holds the text '2,5'.*give --decimal , ")),
    "many problems": (
        "id,age,price,state,when,q\n"
        + "".join(f'r{i % 8},{i or ""},"{i % 7},5",s{i % 9},1/2/2003,{i}\n' for i in range(300))
        + "r300,7,\"1,5\",s1,1/2/2003,x\n",
        {"max_categories": 8},
        r"^a.csv: 6 columns need an option: \(1\) the column 'id' has more than 8 .* .likewise 1 column: "
        r"state.; \(2\) row 2 .*: the column 'age' has no value; .*\(3\) the column 'price' .*\(4\) the "
        r"column 'when' holds dates such as '1/2/2003'.*\(5\) row 302 .*: the column 'q'"),
    "gaps in many columns": ("a,b,c\n1,2,\n3,,4\n,5,6\n", {},
        row(4, "the column 'a' has no value; .* or drop .likewise 2 columns: b, c.$")),
    "one fault of many columns": (
        ",".join(f"x{i}" for i in range(40)) + ",y\n" + "9;5," * 40 + "q;1\n" + "0.5," * 40 + "0.1\n", {},
        r"'x0' holds .*; correct it, .* .likewise 40 columns: x1, x2, .*, x12 and 28 more.$"),
    "percentages": ("a,b\n12 %,1\n7.5%,2\n", {}, "'a' holds numbers with signs such as '12 %'; remove"),
    "names": ("id,a\n" + "".join(f"r{i},{i}\n" for i in range(200)), {},
        "the column 'id' has another text in each row, such as 'r0'; give --name 'id' if"),
    "late text among dates": ("d,a\n" + "2021-05-18,1\n" * 2000 + "soon,2\n", {},
        row(2002, "the column 'd' holds the text 'soon', but dates in other rows; correct it")),
    "late text among months": ("d,a\n" + "2021-05-18,1\n" * 2000 + "soon,2\n", {"dates": "month"},
        "'d' holds the text 'soon', but dates in other rows"),
    "parts of dates": ("d,a\n2021-05-18,1\n", {"dates": "day"}, "^--dates: expected some of days, year"),
    "thousands": ('a,b\n"1,234",2\n"12,345.5",3\n', {}, "such as '1,234'; give --thousands , "),
    "decimals and thousands": ("a;b\n1.234,56;2\n7,5;3\n", {"decimal": "."},
        "such as '1.234,56'; give --decimal , --thousands ."),
    "blanks between thousands": ("a,b\n1 234.5,2\n", {}, "such as '1 234.5'; give --thousands space"),
    "one mark for both": ("a\n1\n", {"thousands": "."}, r"^--thousands \.: is the mark before"),
    "no groups of three": ('a\n"1,234"\n"1,23"\n', {"thousands": ","},
        "the column 'a' holds the text '1,23'"),
    "date of another order": ("d\n18/05/2021\n05/18/2021\n", {"date_order": "dmy"},
        "dates such as '05/18/2021', which --date-order dmy cannot read; correct them"),
    "ambiguous dates": ("d\n03/04/2021\n", {}, "give --date-order dmy or mdy"),
    "no value at all": ("a,b\n,2\n", {"missing": "mean"}, "the column 'a' has no value in any row"),
    "no x": ("a,b\n1,2\n", {"x": "z*"}, r"has no column 'z\*'"),
    "x and y": ("a,b\n1,2\n", {"x": "a,b", "y": "b"}, "^--x: the column 'b' of"),
    "no column left": ("a,b\n1,2\n", {"x": "!*"}, "no column is left for X"),
    "two roles": ("a,b\n1,2\n", {"y": "b", "groups": "b"},
        "a column can have one role, got --y b, --groups b"),
    "negative weight": ("a,w\n1,1\n1,-1\n", {"weights": "w"}, row(3, "expected weights >= 0")),
    "text for weights": ("a,w\n1,x\n", {"weights": "w"}, "^--weights: a.csv: expected numbers, got text"),
    "text among weights": ("a,w\n1,1\n1,x\n", {"weights": "w"}, "the column 'w' holds the text 'x'"),
    "float32": ("a\n16777217\n", {"dtype": "float32"},
        "^--dtype float32 cannot hold values of the column 'a'"),
    "category like a column": ("a,a=u\nu,1\n", {},
        "a column and a category would both have the name 'a=u'"),
    "delimiter": ("a\n1\n", {"delimiter": "--"}, "^--delimiter: expected one character"),
    "length": ("a\n1\n", {"length": 3}, "--length is not an option for the format table"),
    "NUL": ("c,y\nred,0\nred,1\nr\0d,0\nblue,1\n", {"y": "y"}, row(4, "the column 'c' holds a NUL byte")),
}  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize("case", CSV)
@pytest.mark.parametrize("parser", ["narrow", "wide"])
def test_csv(
    case: str, parser: str, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with few columns and with many are parsed differently."""
    if parser == "wide":
        monkeypatch.setattr(delimited, "MOST_COLUMNS", 0)
    content, options, message = CSV[case]
    saved(tmp_path, "a.csv", content if isinstance(content, bytes) else content.encode())
    refuse("a.csv", options, message)


def parquet(**columns: Any) -> bytes:
    found: bytes = write_parquet(io.BytesIO(), columns).getvalue()
    return found


WHOLE = parquet(a=[1, 2, 3])
TYPES = parquet(t=pa.array([1, 2], pa.time32("s")), big=[1, 1 << 60], a=[1.5, np.nan])
PARQUET: dict[str, tuple[bytes, dict[str, Any], str]] = {
    **{f"cut at {cut}": (WHOLE[:cut], {"format": "parquet"}, "^a.parquet is not a complete Parquet file")
        for cut in (3, 100, -1)},
    "no x": (WHOLE, {"x": "a*,lable"}, "no column 'lable'"),
    "decimal": (parquet(d=pa.array([decimal.Decimal(9007199254740993)] * 3)), {},
        r"row 1: the column 'd' holds 9007199254740993, an integer beyond 2\^53"),
    "time of day": (TYPES, {}, "the column 't' is of the type time32"),
    "large integer": (TYPES, {"x": "!t"}, r"the column 'big' has integers beyond 2\^53"),
    "nan": (TYPES, {"x": "a"}, "row 2: the column 'a' has no value"),
}  # fmt: skip


@pytest.mark.parametrize("case", PARQUET)
def test_parquet(case: str, refuse: Refuse, tmp_path: Path) -> None:
    content, options, message = PARQUET[case]
    saved(tmp_path, "a.parquet", content)
    refuse("a.parquet", options, message)


def test_a_file_with_other_columns(refuse: Refuse, tmp_path: Path) -> None:
    saved(tmp_path, "a.csv", b"a,b,c\n1,2,3\n")
    saved(tmp_path, "b.csv", b"a,b\n1,2\n")
    refuse("a.csv b.csv", {}, "b.csv.* has 2 columns instead of 3")


def test_hdf5_in_python(tmp_path: Path) -> None:
    """The command copies the arrays."""
    path = saved(tmp_path, "a.h5ad", b"\x89HDF\r\n\x1a\n")
    assert f"fcl train {path} --x X --y obs/LABEL --features columns" in refusal(path)
