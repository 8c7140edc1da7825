"""PLINK files, written by bed-reader, against the matrix that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from converted import converted, refusal, saved

import fcl
from fcl.cli.inspect import command as inspect
from fcl.cli.predict import command
from fcl.cli.train import command as train
from fcl.convert import run
from fcl.convert.contract import Budget
from fcl.convert.plink import reader
from fcl.convert.plink.reader import Transposed
from fcl.data.columns import Variant
from fcl.errors import BudgetError
from fcl.model.columns import match
from fcl.model.variants import orientation
from fcl.report.measured import measure

bed_reader = pytest.importorskip("bed_reader")

N, M = 13, 31
NAMES = [f"s{i}" for i in range(N)]


def trio(folder: Path, x: np.ndarray, **properties: Any) -> Path:
    """Write geno.bed, .bim and .fam: genotypes (n, m), NaN if missing."""
    folder.mkdir(exist_ok=True)
    n, m = x.shape
    found = {
        "fid": [f"f{i}" for i in range(n)],
        "iid": [f"i{i}" for i in range(n)],
        "sid": [f"rs{j}" for j in range(m)],
        "chromosome": [str(1 + j % 3) for j in range(m)],
        "bp_position": range(1000, 1000 + m),
        "allele_1": ["A"] * m,
        "allele_2": ["G"] * m,
        "pheno": [-9] * n,
        "sex": [0] * n,
    }
    path = folder / "geno.bed"
    whole = np.ascontiguousarray(x)
    bed_reader.to_bed(path, whole, properties=found | properties, num_threads=1)
    return path


def write(folder: Path, missing: bool = True, **properties: Any) -> np.ndarray:
    """Write 13 samples and 31 variants, of which some have the same names; returns the genotypes."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 3, (N, M)).astype(np.float64)
    if missing:
        x[rng.random((N, M)) < 0.1] = np.nan
        x[2] = 1  # a complete sample
        x[:, 5] = np.nan
        x[2, 5] = 2
    found = {"fid": [f"f{i // 3}" for i in range(N)], "iid": NAMES, "sex": [1, 2, 0] * 4 + [1]}
    found["sid"] = ["rs1", "rs1", ".", "."] + [f"v{j}" for j in range(4, M)]
    more = {"chromosome": ["1"] * M, "bp_position": range(100, 100 + M), "allele_2": ["C"] * M}
    trio(folder, x, **found | more | properties)
    return x


def stored(folder: Path, x: np.ndarray, y: np.ndarray | None = None, **properties: Any) -> Path:
    """Convert such files, and add a target; returns the Zarr group beside the folder."""
    path = folder.with_suffix(".zarr")
    run.convert([trio(folder, x, **properties)], path, memory="4GiB")
    if y is not None:
        zarr.open_group(path, mode="a").create_array("y", data=y)
    return path


def model_of(path: Path) -> fcl.Model:
    return fcl.train(fcl.open_data(path), "columns", loss="squared", C=1.0).model


def genotypes(n: int, m: int, seed: int, missing: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.binomial(2, rng.uniform(0.2, 0.8, m), (n, m)).astype(np.float64)
    x[rng.random((n, m)) < missing] = np.nan
    return x


def predicted(*arguments: object) -> np.ndarray:
    """The margins that the command prints."""
    result = CliRunner().invoke(command, [*map(str, arguments), "--out", "-", "--quiet"])
    assert result.exit_code == 0, result.output
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    place = lines[0].index("margin")
    return np.array([float(cells[place]) for cells in lines[1:]])


def complete(x: np.ndarray, like: np.ndarray | None = None) -> np.ndarray:
    """Genotypes with the means of variants, by default their own, in place of missing ones."""
    return np.where(np.isnan(x), np.nanmean(x if like is None else like, 0), x)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 8 variants, bands of 3 samples, blocks of two."""
    monkeypatch.setattr(reader, "_PART", 10_000)
    monkeypatch.setattr(reader, "_SHORTEST", 1)
    divide = run.divide_memory

    def divide_small(*given: Any) -> Any:
        budget, layout = divide(*given)
        return Budget(1 << 20, 700, budget.scratch), layout

    monkeypatch.setattr(run, "divide_memory", divide_small)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("missing", [False, True])
def test_genotypes(missing: bool, tmp_path: Path) -> None:
    x = write(tmp_path, missing)
    found = converted(tmp_path / "geno.bed")
    np.testing.assert_allclose(found.x, complete(x), rtol=1e-6)
    assert found.x.dtype == (np.float32 if missing else np.uint8)
    duplicates = ["rs1_1:100:A:C", "rs1_1:101:A:C", "._1:102:A:C", "._1:103:A:C"]
    assert found.names == duplicates + [f"v{j}" for j in range(4, M)]
    assert found.y is None and "y: none" in found.notes
    assert (f"missing: {np.isnan(x).sum()} genotypes" in found.notes) == missing
    assert found.group["var/missing"][:].tolist() == np.isnan(x).sum(0).tolist()
    assert found.group["obs/name"][:].tolist() == NAMES
    assert found.group["obs/sex"][:].tolist() == [1, 2, 0] * 4 + [1]
    codes, families = found.group["obs/family/codes"], found.group["obs/family/categories"]
    assert [families[:][code] for code in codes[:]] == [f"f{i // 3}" for i in range(N)]
    inputs = [each["name"] for each in found.group.attrs["fcl"]["inputs"]]
    assert inputs == ["geno.bed", "geno.bim", "geno.fam"]
    if missing:
        whole = ~np.isnan(x).any(1)
        found = converted(tmp_path / "geno.bed", missing="drop")
        np.testing.assert_array_equal(found.x, x[whole])
        assert found.group["obs/source_row"][:].tolist() == np.flatnonzero(whole).tolist()
        assert found.summary.dropped == {"with missing genotypes": N - whole.sum()}


CASES = [1, 2, 0, -9, 2, 1], [1, 2, None, None, 2, 1], "1 = control, 2 = case"
TRAIT = [1.5, 2, 0, -9, "NA", -1], [1.5, 2, 0, None, None, -1], "a trait"
COUNTS = [3, 2, 0, -9, 1, 1], [3, 2, 0, None, 1, 1], "a trait"
#: Columns of names, and the names in them of a sample and its family.
KEYS = {"iid": ("IID", "s{0}"), "fid": ("#FID\tIID", "f{1}\ts{0}"), "joined": ("name", "f{1}_s{0}")}


@pytest.mark.parametrize(
    ("values", "expected", "note", "where"),
    [(*CASES, "fam"), (*TRAIT, "fam"), (*CASES, "iid"), (*TRAIT, "fid"), (*COUNTS, "joined")],
)
def test_phenotypes(
    values: list[Any], expected: list[Any], note: str, where: str, tmp_path: Path
) -> None:
    padded = [*values, *[-9] * (N - len(values))]
    x = write(tmp_path, False, pheno=padded if where == "fam" else [-9] * N)
    options = {}
    if where != "fam":
        name, key = KEYS[where]
        # the order of the table does not matter, nor do other samples
        rows = [f"{key.format(i, i // 3)}\t5\t{value}\n" for i, value in enumerate(values)]
        rows = rows[::-1] + ["other\t5\t1"] * (where == "iid")
        table = saved(tmp_path, "p.tsv", f"{name}\tage\ttrait\n{''.join(rows)}".encode())
        options["y"] = f"{table}:trait"
    found = converted(tmp_path / "geno.bed", **options)
    kept = [i for i, value in enumerate(expected) if value is not None]
    assert found.y.tolist() == [expected[i] for i in kept] and note in found.notes
    np.testing.assert_array_equal(found.x, x[kept])
    assert found.summary.dropped == {"without a phenotype": N - len(kept)}


@pytest.mark.parametrize(
    ("text", "kept", "properties"),
    [
        ("s3\ns5\nzz\n", [3, 5], {}),
        ("#FID IID\nf1 s3\nf1\ts5\nf9 s6\n", [3, 5], {}),
        # "s" alone could be either
        ("b s\ns\n", [1], {"iid": ["s"] * 2 + NAMES[2:], "fid": ["a", "b"] + ["c"] * (N - 2)}),
    ],
)
def test_keep(text: str, kept: list[int], properties: dict[str, Any], tmp_path: Path) -> None:
    x = write(tmp_path, False, **properties)
    keep = saved(tmp_path, "keep.txt", text.encode())
    found = converted(tmp_path / "geno.bed", keep=str(keep))
    np.testing.assert_array_equal(found.x, x[kept])
    assert found.summary.dropped == {"not in --keep": N - len(kept)}
    assert "1 name not in" in found.notes or found.group["obs/name"][:].tolist() == ["b_s"]


def test_remove(tmp_path: Path) -> None:
    x = write(tmp_path, False)
    options = {name: str(saved(tmp_path, name, text)) for name, text in
               (("keep", b"s3\ns5\ns6\n"), ("remove", b"s5\ns7\n"))}  # fmt: skip
    found = converted(tmp_path / "geno.bed", **options)
    np.testing.assert_array_equal(found.x, x[[3, 6]])
    assert found.summary.dropped == {"not in --keep": N - 3, "in --remove": 1}


def test_covariates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with their table of covariates score like the converted data; effects count alleles."""
    monkeypatch.chdir(tmp_path)
    x = complete(write(tmp_path))
    site = ["ward", "home", "ward"] * N
    lines = [f"f{i // 3} {name} {40 + 3 * i} {site[i]}" for i, name in enumerate(NAMES)]
    lines[4] = "f1 s4 NA ward"
    saved(tmp_path, "c.txt", "\n".join(["#FID IID age site", *lines[::-1]]).encode())
    y = x[:, 7] - x[:, 20] + 0.1 * np.arange(N)
    rows = [f"{name} {value + 10}" for name, value in zip(NAMES, y, strict=True)]
    saved(tmp_path, "p.txt", "\n".join(["IID t", *rows]).encode())
    found = converted(tmp_path / "geno.bed", y=f"{tmp_path}/p.txt:t", covariates="c.txt")
    assert found.summary.dropped == {"without a covariate": 1}
    assert "covariates: obs/age,obs/site" in found.notes
    names = ["obs/age", "obs/site"]
    data = fcl.open_data("out.zarr", covariates=names)
    model = fcl.train(data, "columns", loss="squared", C=1.0).model
    model.save("m.fcl")
    scores = predicted("m.fcl", "geno.bed", "--covariates", "c.txt")
    np.testing.assert_allclose(scores, model.margins(data), rtol=1e-5)
    result = CliRunner().invoke(command, ["m.fcl", "geno.bed", "--out", "s.tsv"])
    assert result.exit_code == 2 and "geno.bed lacks obs/age" in result.stderr
    arguments = ["m.fcl", "geno.bed", "--covariates", "c.txt", "--explain", "2", "--out", "t.tsv"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2 and "--explain: the model has covariates" in result.stderr
    given = ["--y", "p.txt:t", "--loss", "squared", "--C", "1", "--covariates", "obs/sex"]
    CliRunner().invoke(train, ["geno.bed", *given, "--out", "sex.fcl"], catch_exceptions=False)
    assert fcl.load_model("sex.fcl").covariate_names == ["obs/sex"]

    def table(*options: str) -> list[list[str]]:
        result = CliRunner().invoke(inspect, ["m.fcl", "--tsv", "w", "--overwrite", *options])
        assert result.exit_code == 0, result.output
        lines = Path("w").read_text().splitlines()
        return [line.split("\t") for line in lines if not line.startswith("#")]

    rows = model.describe()
    head, *effects = table()
    assert head[3:] == [
        "chromosome",
        "position",
        "effect_allele",
        "other_allele",
        "effect_per_allele",
    ]
    assert len(effects) == len(rows) + 3 and effects[-1][0] == "(intercept)"
    assert float(effects[-1][1]) == model.intercept and effects[-2][0] == "obs/site=ward"
    pgs, plink = table("--format", "pgs")[1:], table("--format", "plink")[1:]
    for row, effect, score, allele in zip(rows, effects, pgs, plink, strict=False):
        variant = model.variants[row.id] if model.variants else None
        assert variant is not None and float(effect[1]) == row.weight
        place = [variant.chromosome, str(variant.position), variant.a1, variant.a2]
        # X counts the allele A1
        assert effect[3:] == [*place, effect[1]] == [*score[1:5], score[5]]
        assert allele == [score[0], variant.a1, effect[1]]
    frame = model.to_dataframe(unpenalised=True)
    assert list(frame["feature"])[-3:] == ["obs/age", "obs/site=ward", "(intercept)"]
    assert frame["effect_per_allele"][0] == rows[0].weight and frame["effect_allele"][0] in "AC"


@pytest.mark.parametrize("header", ["FID\tIID\tt", "#fid\tiid\tt"])
def test_names_that_resemble_other_samples(header: str, tmp_path: Path) -> None:
    ids = ["b", "a_b", "c", "b_c", "v", "w", *NAMES[6:]]
    families = ["a", "x", "a_b", "a", "w", "v", *["f"] * (N - 6)]
    write(tmp_path, False, iid=ids, fid=families)
    rows = [f"{families[i]}\t{ids[i]}\t{i + 0.5}" for i in reversed(range(N))]
    table = saved(tmp_path, "p.tsv", "\n".join([header, *rows]).encode())
    found = converted(tmp_path / "geno.bed", y=f"{table}:t")
    assert found.y.tolist() == [i + 0.5 for i in range(N)]
    single = saved(tmp_path, "q.tsv", b"IID\tt\na_b\t1.5\nv\t2.5\n")  # a_b could be either
    found = converted(tmp_path / "geno.bed", y=f"{single}:t")
    assert found.y.tolist() == [2.5] and found.group["obs/name"][:].tolist() == ["v"]


def flipped(x: np.ndarray, columns: list[int]) -> np.ndarray:
    """Genotypes with the other allele counted in some columns."""
    found = x.copy()
    found[:, columns] = 2 - found[:, columns]
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_the_variants_of_training_data(tmp_path: Path) -> None:
    """In other order, with A1 and A2 exchanged, and more variants; missing ones get training means."""
    x = write(tmp_path)
    first = converted(tmp_path / "geno.bed")
    np.testing.assert_allclose(first.group["var/mean"][:], np.nanmean(x, 0), rtol=1e-6)
    assert first.group["var/a1"][:].tolist() == ["A"] * M
    (tmp_path / "out.zarr").rename(tmp_path / "train.zarr")

    order = np.random.default_rng(4).permutation(M)
    swapped = [2, 3, 11, 30]  # columns of the new file
    test = flipped(x[:, order], swapped)[:9]
    alleles = np.array([["A", "C"]] * M)
    alleles[swapped] = ["C", "A"]
    alleles[5, 0] = alleles[11, 0] = "0"  # PLINK writes it if no sample has the allele
    names = np.array(first.names, object)[order]
    bed = trio(
        tmp_path / "test",
        np.column_stack([test, np.ones(9)]),
        sid=[*names, "new"],
        allele_1=[*alleles[:, 0], "A"],
        allele_2=[*alleles[:, 1], "G"],
    )
    like = {"like": str(tmp_path / "train.zarr")}
    found = converted(bed, **like)
    np.testing.assert_allclose(found.x, complete(x)[:9], rtol=1e-6)
    assert found.names == first.names
    assert f"like: uses {M} of {M + 1} variants; 4 have A1 and A2 in the other" in found.notes
    again = converted(bed, like=str(bed.with_name("out.zarr")), missing="drop")
    np.testing.assert_array_equal(again.x, x[:9][~np.isnan(x[:9]).any(1)])

    bim = bed.with_suffix(".bim")
    lines = bim.read_text().splitlines()
    for line, message in (
        (lines[7].replace(names[7], "other"), f"lacks 1 of the {M} variants of "),
        (lines[7].replace("\tA", "\tT"), f"the variant {names[7]!r} has the alleles 'T/C', in the"),
    ):
        bim.write_text("\n".join([*lines[:7], line, *lines[8:]]))
        assert message in (refused := refusal(bed, **like))
        assert repr(names[7])[1:-1] in refused and "plink" in refused
    table = saved(tmp_path, "t.csv", b"y,b\n1,2\n0,3\n")
    converted(table, y="y")
    assert "from PLINK files" in refusal(bed, like=str(tmp_path / "out.zarr"))


def test_the_plan_for_a_biobank(tmp_path: Path) -> None:
    """Blocks follow from the budget: few and long requests, and memory within its part."""
    budget = Budget(200 << 20, 8 << 20, str(tmp_path))
    plan = Transposed(50_000, 500_000, budget)
    for ranges, other in ((plan.tiles, 50_000), (plan.bands, 500_000)):
        assert [each.start for each in ranges[1:]] == [each.stop for each in ranges[:-1]]
        assert ranges[0].stop * other <= 50 << 20 and ranges[0].start == 0
    assert plan.tiles[-1].stop == 500_000 and plan.bands[-1].stop == 50_000
    assert len(plan.tiles) * len(plan.bands) < 250_000
    with pytest.raises(BudgetError, match=r"16 variants of 5,000,000 samples, need 76\.3 MiB"):
        Transposed(5_000_000, 10, budget)


def test_prediction_with_the_variants_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training files, and other samples with exchanged alleles in another order, score like Zarr."""
    monkeypatch.chdir(tmp_path)
    x = write(tmp_path)
    whole = complete(x)
    y = whole[:, 7] + 3 * whole[:, 11] - whole[:, 20]
    rows = [f"{name}\t{value + 10}" for name, value in zip(NAMES, y, strict=True)]
    saved(tmp_path, "p.tsv", "\n".join(["IID\tt", *rows]).encode())
    converted(tmp_path / "geno.bed", y=f"{tmp_path / 'p.tsv'}:t")
    data = fcl.open_data("out.zarr")
    model = model_of(Path("out.zarr"))
    model.save("m.fcl")
    assert model.variants and fcl.load_model("m.fcl").variants == model.variants
    names = list(data.column_names or ())
    weights = {names.index(row.feature): row.weight for row in model.describe()}
    expected = model.intercept + sum(w * whole[:, column] for column, w in weights.items())
    np.testing.assert_allclose(predicted("m.fcl", "geno.bed"), expected, rtol=1e-5)
    order, part = np.random.default_rng(1).permutation(M), slice(4, 9)  # with means of their own
    other = trio(
        tmp_path / "test",
        (2 - x[:, order])[part],
        sid=np.array(names, object)[order],
        chromosome=["1"] * M,
        bp_position=range(100, 100 + M),
        allele_1=["C"] * M,
        allele_2=["A"] * M,
    )
    np.testing.assert_allclose(predicted("m.fcl", other), expected[part], rtol=1e-5)
    # a model without variants needs the training data
    model = fcl.train(fcl.open_data(whole, y=y), "columns", loss="squared", C=1.0).model
    model.save("u.fcl")
    result = CliRunner().invoke(command, ["u.fcl", "geno.bed", "--out", "s.tsv"])
    line = "fcl predict u.fcl geno.bed --like TRAIN.zarr --out s.tsv"
    assert result.exit_code == 2 and line in result.stderr and not Path("s.tsv").exists()
    found = predicted("u.fcl", "geno.bed", "--like", "out.zarr")
    np.testing.assert_allclose(found, model.margins(whole), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exchanged", "order", "more"])
@pytest.mark.parametrize("covariates", [None, "obs/age"])
def test_alleles_are_turned_wherever_rows_come_in(
    how: str, covariates: str | None, tmp_path: Path
) -> None:
    """From .bed and from Zarr, in Python, validation and report: with the training alleles and means."""
    n, m = 60, 12
    x, test = genotypes(n, m, 1, 0.05), genotypes(40, m, 2, 0.05)
    test[:, 5] = np.tile([0, 1, 2, np.nan], 10)  # a mean like a genotype
    targets = {"train": complete(x) @ np.linspace(-1, 1, m) + 10, "test": np.arange(40.0)}
    stored(tmp_path / "train", x, targets["train"])
    exchanged = [0, 3, 7, 11]
    names = [f"rs{j}" for j in range(m)]
    alleles = np.array([["A", "G"]] * m)
    alleles[exchanged] = ["G", "A"]
    order = np.arange(m) if how == "exchanged" else np.random.default_rng(3).permutation(m)
    extra = int(how == "more")
    path = stored(
        tmp_path / "test",
        np.column_stack([flipped(test, exchanged)[:, order], *[np.ones(40)] * extra]),
        targets["test"],
        sid=[*np.array(names)[order], *["new"] * extra],
        allele_1=[*alleles[order, 0], *["T"] * extra],
        allele_2=[*alleles[order, 1], *["C"] * extra],
        chromosome=[*[str(1 + j % 3) for j in order], *["9"] * extra],
        bp_position=[*(1000 + order), *[7] * extra],
    )
    bed = tmp_path / "test" / "geno.bed"
    ages = {"train": np.linspace(20, 60, n), "test": np.linspace(30, 50, 40)}
    for name, age in ages.items():
        zarr.open_group(tmp_path / f"{name}.zarr", mode="a").create_array("obs/age", data=age)
    train = fcl.open_data(tmp_path / "train.zarr", covariates=covariates)
    valid = fcl.open_data(path, covariates=covariates)
    result = fcl.train(train, "columns", loss="squared", C=0.05, valid=valid)
    result.model.save(tmp_path / "m.fcl")
    model = fcl.load_model(tmp_path / "m.fcl")
    assert 0 < model.n_active <= m
    want = model.intercept + complete(test, x)[:, model.ids] @ model.weights
    if covariates:
        want = want + model.covariates[0].coefficients[0] * ages["test"]
    np.testing.assert_allclose(model.margins(path), want, rtol=1e-6)
    np.testing.assert_allclose(predicted(tmp_path / "m.fcl", path), want, rtol=1e-6)
    np.testing.assert_allclose(model.explain(valid).margins, want, rtol=1e-6)
    measured = measure(model, valid).predictions.margins.values
    np.testing.assert_allclose(np.sort(measured), np.unique(want), rtol=1e-6)
    mse = np.mean((want - targets["test"]) ** 2)
    assert result.history[-1]["validation"]["mse"] == pytest.approx(mse, rel=1e-5)
    if covariates is None:
        np.testing.assert_allclose(predicted(tmp_path / "m.fcl", bed), want, rtol=1e-6)
    # the rows that --like makes need not be turned
    run.convert([bed], tmp_path / "like.zarr", like=str(tmp_path / "train.zarr"), memory="4GiB")
    zarr.open_group(tmp_path / "like.zarr", mode="a").create_array("obs/age", data=ages["test"])
    np.testing.assert_allclose(model.margins(tmp_path / "like.zarr"), want, rtol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "exchanged"),
    [("AG", "AG", False), ("AG", "ga", True), ("AG", "AC", None), ("A0", "0A", True),
     ("A0", "GA", True), ("A0", "AG", False), ("00", "AG", False), ("0A", "0G", True)],
)  # fmt: skip
def test_alleles_that_no_sample_has(ours: str, theirs: str, exchanged: bool | None) -> None:
    """They fit any, and what they leave open stays as in the file."""
    assert orientation(Variant(*ours, np.nan), Variant(*theirs, np.nan)) is exchanged


def test_other_alleles_in_zarr_are_refused(tmp_path: Path) -> None:
    x = genotypes(30, 4, 1)
    y = x @ [1, -1, 1, -1]
    data = fcl.open_data(stored(tmp_path / "a", x, y))
    model = model_of(tmp_path / "a.zarr")
    stored(tmp_path / "b", x, allele_2=["G", "T", "G", "G"])
    with pytest.raises(
        fcl.InputError, match=r"b\.zarr: the variant 'rs1' has the alleles 'A/T', in"
    ):
        model.margins(tmp_path / "b.zarr")
    stored(tmp_path / "c", 2 - x, y, allele_1=["G"] * 4, allele_2=["A"] * 4)
    start = fcl.open_data(tmp_path / "c.zarr")
    warm = fcl.train(start, "columns", loss="squared", C=1.0, initial=model)
    assert warm.passes == 2
    np.testing.assert_allclose(warm.model.weights, -model.weights, rtol=1e-3)
    # the same genotypes with another record of alleles are another job
    fcl.train(data, "columns", loss="squared", C=1.0, checkpoint=tmp_path / "ck")
    group: Any = zarr.open_group(tmp_path / "a.zarr", mode="a")
    first, second = group["var/a1"][:], group["var/a2"][:]
    group["var/a1"][:], group["var/a2"][:] = second, first
    again = fcl.open_data(tmp_path / "a.zarr")
    with pytest.raises(fcl.InputError, match="its columns had other names, alleles, means or cat"):
        fcl.train(again, "columns", loss="squared", C=1.0, resume=tmp_path / "ck")


IDS = ["rs1", "rs1", ".", ".", "rs5", "."]


@pytest.mark.parametrize(
    ("sid", "chromosome"), [(IDS, ["1"] * 6), (["rs1", "x", ".", "y", ".", "."], ["chr1"] * 6)]
)
def test_duplicated_ids_with_exchanged_alleles(
    sid: list[str], chromosome: list[str], tmp_path: Path
) -> None:
    """They are found by chromosome, position and the set of their alleles; in any order."""
    x, test = genotypes(40, 6, 5), genotypes(30, 6, 6)
    places, order = np.array([10, 10, 30, 40, 50, 60]), [5, 3, 1, 0, 2, 4]
    train = stored(
        tmp_path / "train",
        x,
        x @ [1, -1, 2, -2, 3, 1],
        sid=IDS,
        chromosome=["1"] * 6,
        bp_position=places,
        allele_1=list("ACAAAA"),
        allele_2=list("GTGGGG"),
    )
    path = stored(
        tmp_path / "test",
        flipped(test, [0, 2, 4, 5])[:, order],
        sid=[sid[j] for j in order],
        chromosome=chromosome,
        bp_position=places[order],
        allele_1=["GCGAGG"[j] for j in order],
        allele_2=["ATAGAA"[j] for j in order],
    )
    found = tmp_path / "test" / "geno.bed"
    like = converted(found, like=str(train))
    np.testing.assert_array_equal(like.x, test)
    assert "4 have A1 and A2 in the other order" in like.notes
    model = model_of(train)
    model.save(tmp_path / "m.fcl")
    want = model.intercept + test[:, model.ids] @ model.weights
    np.testing.assert_allclose(predicted(tmp_path / "m.fcl", found), want, rtol=1e-9)
    np.testing.assert_allclose(model.margins(path), want, rtol=1e-9)


def test_places_and_alleles_that_do_not_decide(tmp_path: Path) -> None:
    """Two variants with the same place and alleles, or none; 0 stands for an allele of no sample."""
    x = genotypes(20, 2, 7)
    like = {"like": str(stored(tmp_path / "a", x, sid=[".", "rs2"], chromosome=["1", "1"]))}
    three = np.column_stack([x, x[:, 0]])
    same = {"bp_position": [1000, 1001, 1000], "chromosome": ["1"] * 3}
    twice = trio(tmp_path / "b", three, sid=["q", "rs2", "r"], **same)
    assert "2 variants could be '.' of the training data: chromosome 1" in refusal(twice, **like)
    other = trio(tmp_path / "c", three, sid=[".", "rs2", "r"], bp_position=[9, 1001, 8])
    assert "lacks 1 of the 2 variants of the training data, such as '.'" in refusal(other, **like)
    five = {"like": str(stored(tmp_path / "five", genotypes(20, 5, 8)))}
    others = trio(tmp_path / "others", genotypes(20, 5, 8), sid=list("abcde"), bp_position=range(5))
    assert "lacks 5 of the 5 variants of the training data, such as 'rs0', 'rs1', 'rs2'; add" in (
        refusal(others, **five)
    )
    x = np.zeros((10, 2))  # nobody has A1: the order in which the other allele is the same counts
    train = stored(tmp_path / "d", x, allele_1=["0", "0"], allele_2=["A", "A"])
    test = trio(tmp_path / "e", 2 - x, allele_1=["A", "A"], allele_2=["0", "G"])
    np.testing.assert_array_equal(converted(test, like=str(train)).x, x)


def test_missing_genotypes_that_look_like_the_others(tmp_path: Path) -> None:
    """Of a variant of which all other rows have the same genotype: they are counted."""
    x, test = genotypes(40, 3, 8), genotypes(9, 3, 9)
    test[:, 1] = [0, 0, np.nan, 0, 0, np.nan, 0, 0, 0]
    train, other = stored(tmp_path / "a", x, x @ [1, -1, 2]), stored(tmp_path / "b", test)
    model = model_of(train)

    def note(path: Path) -> str:
        record = fcl.open_data(path, y=None).column_record
        return match(model.column_record, record, 3, 3).note

    assert note(other) == (
        "columns: 3 read, by name; 2 missing genotypes of variants with one genotype in these rows keep "
        "it (--like replaces them)"
    )
    like = tmp_path / "c.zarr"
    run.convert([tmp_path / "b" / "geno.bed"], like, like=str(train), memory="4GiB")
    assert note(like) == ""
    want = complete(test, x) @ model.weights + model.intercept
    np.testing.assert_allclose(model.margins(like), want, rtol=1e-6)
