"""Handwritten digits: stagewise models of generated features, and a softmax lasso with a certificate.

python examples/mnist/digits.py train --data mnist.npz              1.3 % test error
python examples/mnist/digits.py train --data mnist.npz --deskew     0.8 %
python examples/mnist/digits.py choose --data mnist.npz             bandwidths, by validation
python examples/mnist/digits.py lasso --data mnist.npz              few features, certified

mnist.npz holds train_x, uint8 (60000, 784), train_y, test_x and test_y. Without --data, scikit-learn
downloads the digits from openml.org.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

import fcl
from fcl import Fourier, StagewiseClassifier

#: The kernel is exp(-gamma |z - z'|^2); 1 / GAMMA is about the median squared distance of two digits. The
#: validation errors (``choose``) of half and of 1.4 times this value differ by noise only.
GAMMA = 0.012


def main(arguments=None):
    args = parse(arguments)
    digits = load(args)
    print(f"{len(digits.x):,} training rows, {len(digits.test_x):,} test rows", flush=True)
    {"train": train, "choose": choose, "lasso": lasso}[args.command](digits, args)


def parse(arguments):
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", help="mnist.npz (default: download the digits)")
    shared.add_argument("--rows", type=int, help="use this many training rows (default: all)")
    shared.add_argument("--deskew", action="store_true", help="straighten slanted digits first")
    shared.add_argument(
        "--seeds", type=int, nargs="+", default=[0], help="random features (default 0)"
    )
    shared.add_argument("--memory", default="2GiB", help="memory budget (default 2GiB)")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, features, visits in (("train", 40_960, 3), ("choose", 24_576, 3)):
        command = commands.add_parser(name, parents=[shared])
        command.add_argument("--features", type=int, default=features)
        command.add_argument(
            "--visits", type=int, default=visits, help="of each block of 1,024 features"
        )
    commands.choices["choose"].add_argument(
        "--gammas", type=float, nargs="+", default=[0.006, 0.012]
    )
    command = commands.add_parser("lasso", parents=[shared])
    command.add_argument("--features", type=int, default=20_000)
    command.add_argument("--C", type=float, default=0.05)
    command.add_argument("--tol", type=float, default=1e-2, help="relative gap (default 1e-2)")
    return parser.parse_args(arguments)


# -- data ------------------------------------------------------------------------------------------


@dataclass
class Digits:
    """Images as float32 rows of 784 values from 0 to 1, and the digit that each shows."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def load(args):
    if args.data is None:
        from sklearn.datasets import fetch_openml

        x, y = fetch_openml("mnist_784", as_frame=False, parser="liac-arff", return_X_y=True)
        y = y.astype(int)
        parts = [x[:60_000], y[:60_000], x[60_000:], y[60_000:]]
    else:
        with np.load(args.data) as stored:
            parts = [stored[name] for name in ("train_x", "train_y", "test_x", "test_y")]
    x, y, test_x, test_y = parts
    x, y = x[: args.rows], y[: args.rows]
    change = deskewed if args.deskew else np.asarray
    x, test_x = (change(some.astype(np.float32) / 255.0) for some in (x, test_x))
    return Digits(x, y, test_x, test_y)


def deskewed(rows):
    """Shear each image until its columns and lines are uncorrelated, and centre its mass."""
    from scipy.ndimage import affine_transform

    images, line, middle = rows.reshape(-1, 28, 28), np.arange(28), np.array([14.0, 14.0])
    mass = images.sum(axis=(1, 2))
    height = line - (images.sum(axis=2) @ line / mass)[:, None]
    across = line - (images.sum(axis=1) @ line / mass)[:, None]
    spread = (images.sum(axis=2) * height**2).sum(axis=1)
    slant = np.einsum("nij,ni,nj->n", images, height, across) / spread
    straight = np.empty_like(images)
    for number, image in enumerate(images):
        # output place x shows what the image has at ``shear @ (x - middle)`` from its centre of mass
        shear = np.array([[1.0, 0.0], [slant[number], 1.0]])
        centre = np.array([-height[number, 0], -across[number, 0]])
        affine_transform(image, shear, centre - shear @ middle, output=straight[number], order=1)
    return straight.reshape(len(rows), 784)


# -- models ----------------------------------------------------------------------------------------


def stagewise(gamma, seed, args):
    """Least squares on the ten digits, with cosines of 50 principal components in blocks of 1,024."""
    cosines = Fourier(n=args.features, gamma=gamma, pca=50, seed=seed)
    return StagewiseClassifier(
        cosines, visits=args.visits, validation_fraction=0.0, memory=args.memory
    )


def train(digits, args):
    """Train on all rows, and print the test error for each seed."""
    for seed in args.seeds:
        since, processor = time.perf_counter(), time.process_time()
        model = stagewise(GAMMA, seed, args).fit(digits.x, digits.y)
        seconds, processor = time.perf_counter() - since, time.process_time() - processor
        error = np.mean(model.predict(digits.test_x) != digits.test_y)
        print(
            f"seed {seed}: test error {error:.2%}, {args.features:,} features, {args.visits} visits, "
            f"{seconds:.1f} s ({processor:.1f} s of the processor)",
            flush=True,
        )


def choose(digits, args):
    """Print the error on the last sixth of the training rows for each gamma; test rows are not used.

    Neighbouring rows are by the same writer, so that rows drawn at random would validate nothing.
    """
    held = np.arange(len(digits.y)) >= len(digits.y) * 5 // 6
    for gamma in args.gammas:
        errors = []
        for seed in args.seeds:
            model = stagewise(gamma, seed, args).fit(digits.x[~held], digits.y[~held])
            margins = model.decision_function(digits.x[held])
            truth = digits.y[held, None] == model.classes_
            wrong = np.mean(margins.argmax(axis=1) != truth.argmax(axis=1))
            errors.append((wrong, np.square(margins - truth).sum(axis=1).mean() / 2))
        wrong, loss = np.mean(errors, axis=0)
        print(f"gamma {gamma:g}: validation error {wrong:.2%}, loss {loss:.5f}", flush=True)


def lasso(digits, args):
    """Train a softmax model with few features, and print its gap over the whole family."""
    data = fcl.open_data(digits.x, y=digits.y)
    for seed in args.seeds:
        since = time.perf_counter()
        cosines = Fourier(n=args.features, gamma=GAMMA, pca=50, seed=seed)
        result = fcl.train(
            data, cosines, loss="softmax", C=args.C, tol=args.tol, memory=args.memory
        )
        seconds, model = time.perf_counter() - since, result.model
        error = np.mean(model.predict(digits.test_x) != digits.test_y)
        print(
            f"seed {seed}: relative gap {result.certificate.gap:.1e} over {args.features:,} features, "
            f"{len(model.ids):,} of them in the model, test error {error:.2%}, {seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
