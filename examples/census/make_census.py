#!/usr/bin/env python3
"""Write train.csv.gz and test.csv.gz from a9a and a9a.t of the LIBSVM collection.

    python examples/census/make_census.py a9a a9a.t

Both hold the Adult data of UCI (census of the United States, 1994), with each column as a group of
binary ones. The names of the categories are those of ``adult.names``, in its order; columns of
numbers were cut into five classes, or into zero and more, before they became binary.
"""

from __future__ import annotations

import csv
import gzip
import io
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
FIFTHS = "1 2 3 4 5"
#: The columns of adult.names, in order, with their categories in the order of the binary columns.
COLUMNS = {
    "age_fifth": FIFTHS,
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
    "Never-worked",
    "final_weight_fifth": FIFTHS,
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th "
    "12th Masters 1st-4th 10th Doctorate 5th-6th Preschool",
    "education_years_fifth": FIFTHS,
    "marital_status": "Married-civ-spouse Divorced Never-married Separated Widowed "
    "Married-spouse-absent Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "capital_gain": "no yes",
    "capital_loss": "no yes",
    "hours_fifth": FIFTHS,
    "country": "United-States Cambodia England Puerto-Rico Canada Germany "
    "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras Philippines Italy "
    "Poland Jamaica Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan "
    "Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
    "Trinadad&Tobago Peru Hong Holand-Netherlands",
}
#: Of each binary column, the census column and the category.
NAMES = [(column, name) for column, names in COLUMNS.items() for name in names.split()]
#: Sampling weights of the census, and the years of education, which repeat the column education.
LEFT_OUT = ("final_weight_fifth", "education_years_fifth")
#: The first rows of each file, which are in no particular order: half of them keeps the files small.
ROWS = {"train": 16_000, "test": 8_000}


def make_row(line: str) -> dict[str, str]:
    """The cells of one line of svmlight; a group without a one is a missing value."""
    label, *ones = line.split()
    row = {"income": ">50K" if float(label) > 0 else "<=50K"}
    return row | dict(NAMES[int(one.partition(":")[0]) - 1] for one in ones)


def main() -> None:
    kept = ["income", *(column for column in COLUMNS if column not in LEFT_OUT)]
    for source, (name, n_rows) in zip(sys.argv[1:], ROWS.items(), strict=True):
        text = io.StringIO()
        writer = csv.DictWriter(text, kept, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        lines = pathlib.Path(source).read_text().splitlines()[:n_rows]
        writer.writerows(make_row(line) for line in lines)
        packed = gzip.compress(text.getvalue().encode(), 9, mtime=0)
        (HERE / f"{name}.csv.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
