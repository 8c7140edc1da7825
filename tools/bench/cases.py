"""The table of cases: one line adds a benchmark. A case is data x call x metrics (x what it compares)."""

from __future__ import annotations

from tools.bench import (
    beyond,
    cluster,
    commands,
    constants,
    convert_inputs,
    data,
    first_fit,
    online_learners,
    passes,
    paths,
    prediction,
    stagewise,
    training,
)
from tools.bench.peers import LIBLINEAR
from tools.bench.runner import Case, Ladder, axes

#: Tolerances of Vowpal Wabbit: 1 / passes.
VW = {"method": "vw", "tolerances": tuple(1.0 / 2**k for k in range(0, 10, 2))}
SOLVERS = {name: {"method": name} for name in ("fcl", "liblinear", "celer", "skglm", "saga")}
OF_MATRICES = {**SOLVERS, "vw": VW}
OF_FAMILIES = {"fcl": {"method": "fcl"}, "fcl-columns": {"method": "fcl-columns"}, **OF_MATRICES}
LEVELS = ("within 0.01", "within 0.001", "within 0.0001", "within 1e-06")
SOLVED = (*LEVELS, "load", "from files", "objective", "active", "tolerance")
#: Softmax: the levels, and processor seconds, on a machine with other jobs.
SOFTMAX = Ladder(
    (1e-2, 1e-3), tuple(10.0 ** (-k / 2) for k in range(2, 15)), 1e-6, "processor", 120.0
)
OF_CLASSES = (*LEVELS[:2], "peak", "active", "tolerance", "away")
FITS = ("seconds", "processor", "to 0.1", "to 0.01", "to 0.001", "passes", "active", "objective",
        "gap", "own peak", "peak", "bits", "ratio")  # fmt: skip
COMMAND = ("rows", "to 0.001", "to 0.1", "to 0.01", "first line", "prepared", "first pass",
           "objective within 1e-4", "passes", "active", "objective", "gap", "own peak", "busy cores",
           "ratio")  # fmt: skip
BUDGET = ("rows", "seconds", "peak", "of the budget", "own peak", "passes", "objective", "gap",
          "active", "reason", "problems")  # fmt: skip
CONVERTED = ("rows", "MB", "seconds", "rows/s", "MB/s", "peak", "problems")
STAGES = ("test error", "processor", "seconds")
CLASSIFIERS = {name: {"method": name} for name in
               ("ridge", "lbfgs", "saga", "sgd", *LIBLINEAR, "vw")}  # fmt: skip
WHICH = ("processor", "rows/s", "above optimum", "features", "active", "AUPRC", "rate", "ratio")
CUT = "--genome {folder}/genome.fa --window -70:+71"


def peers(name: str, title: str, make: object, compare: object, **options: object) -> Case:
    """A case that compares solvers by the time to a distance from the optimum."""
    return Case(
        f"peers-{name}", "peers", title, make, training.solve, SOLVED, options, compare,  # type: ignore[arg-type]
        ladder=Ladder(), page=True, patience=240.0,
    )  # fmt: skip


def softmax(name: str, title: str, make: object, methods: str, **options: object) -> Case:
    """A case that compares softmax solvers by processor seconds to a distance from the optimum."""
    compare = {method: {"method": method} for method in methods.split()}
    return Case(
        f"classes-{name}", "classes", title, make, training.solve, OF_CLASSES, options, compare,  # type: ignore[arg-type]
        ladder=SOFTMAX, page=True, patience=300.0,
    )  # fmt: skip


# fmt: off
_ALL = [
    # -- other solvers on matrices that fit in memory
    peers("20news", "20 newsgroups, one group", data.newsgroups, OF_MATRICES, C=0.1),
    peers("a9a", "a9a", data.a9a, OF_MATRICES, C=0.1),
    peers("texts", "texts, few strong words", data.texts, OF_MATRICES, C=0.1),
    peers("reviews", "reviews, thousands of weak words", data.reviews, OF_MATRICES, C=0.1),
    peers("wide", "84,700 x 359,000 at 0.1 %", data.wide, OF_MATRICES, C=0.1),
    peers("kmers", "all k-mers of windows", data.kmers, OF_FAMILIES, C=0.1, every=160, d=4),
    Case("wide-files", "wide", "847,000 x 359,000 on disk within 4 GiB, and LIBLINEAR in memory",
         data.wide_files, commands.wide_table, BUDGET, {"C": 0.02, "memory": "4GiB", "max_time":
         "15m"}, {"fcl": {"method": "fcl"}, "liblinear": {"method": "liblinear"}}, cores=0,
         command=True, patience=1200.0),
    # -- beyond memory
    Case("beyond-fcl", "beyond", "all k-mers of I-IV, scored on V", data.split_files,
         commands.train_command, ("seconds", "objective", "gap", "active", "AUPRC", "own peak"),
         {"part": data.TRAIN, "valid": data.VALID, "C": 0.03, "memory": "6GiB", "max_time": "20m"},
         cores=0, command=True, page=True),
    Case("beyond-peers", "beyond", "other solvers on fewer rows and features of I-IV",
         data.split_files, beyond.beyond_memory, ("features", "rows", "nonzeros", "making",
         "seconds", "peak", "active", "AUPRC"), {"every": 20, "C": 0.03}, {"liblinear, d = 2":
         {"method": "liblinear", "letters": 2}, "vw, d = 3": {"method": "vw", "letters": 3, "tol":
         0.5}, "skglm, d = 3": {"method": "skglm", "letters": 3, "tol": 1e-4}, "celer, d = 3":
         {"method": "celer", "letters": 3, "tol": 1e-4}, "liblinear, 100,000 of d = 8": {"method":
         "liblinear", "letters": 8, "sampled": 100_000}}, page=True, patience=600.0),
    # -- growth
    Case("growth-rows", "growth", "rows and C", data.window_files, commands.train_command, COMMAND, {},
         axes(every=(160, 40, 10, 4, 1), C=(0.03, 0.1)), cores=0, command=True, page=True),
    Case("growth-d", "growth", "letters of a k-mer", data.window_files, commands.train_command,
         COMMAND, {"every": 40}, axes(d=(4, 6, 8, 10)), cores=0, command=True, page=True),
    Case("growth-C", "growth", "C", data.window_files, commands.train_command, COMMAND, {"every": 40},
         axes(C=(0.01, 0.03, 0.1, 0.3)), cores=0, command=True, page=True),
    Case("growth-writers", "growth", "writers", data.window_files, commands.train_command, COMMAND,
         {"every": 10}, axes(writers=(1, 2, 4, 8)), cores=0, command=True, page=True),
    Case("growth-memory", "growth", "budgets", data.window_files, commands.train_command, COMMAND,
         {"every": 10}, axes(memory=("768MiB", "1GiB", "2GiB", "6GiB")), cores=0, command=True,
         page=True),
    Case("growth-50M", "growth", "50 million rows of a generated genome", data.genome_files,
         commands.train_command, COMMAND, {"memory": "8GiB", "max_time": "60m"}, axes(C=(0.01, 0.03)),
         cores=0, command=True),
    Case("sharing", "sharing", "writers and trainer that share their cores", data.window_files,
         commands.train_command, COMMAND, {"every": 40, "C": 0.03, "memory": "8GiB"}, {"inline":
         {"driver": "inline"}, "apart": {"no_share_cores": True}, "shared": {}}, cores=0,
         command=True),
    # -- training from memory
    Case("train", "train", "windows in memory, one core", data.windows, training.train, FITS, {"every":
         40, "C": 0.1, "memory": "4GiB"}, page=True),
    Case("threads", "threads", "threads, and the driver processes", data.windows, training.train,
         (*FITS, "serial", "in two", "2 cores", "4 cores", "16 cores"), {"every": 21, "C": 0.1,
         "shares": True}, {"1 thread": {"threads": 1}, "2 threads": {"threads": 2}, "processes":
         {"driver": "processes", "shares": False}}, cores=0, page=True),
    # -- tuned constants of the trainer
    *(Case(f"constants-{name}", "constants", title, make, constants.fit, ("passes", "processor",
           "ratio", "active", "gap"), options, constants.variants())
      for name, title, make, options in (
          ("windows", "windows of C. elegans, sampled rows", data.windows,
           {"every": 20, "d": 6, "C": 0.1}),
          ("hinge", "the same, squared hinge", data.windows,
           {"every": 20, "d": 6, "C": 0.03, "loss": "squared_hinge"}),
          ("texts", "texts, few strong words", data.texts, {"C": 1.0}),
          ("cuts", "texts, squared hinge: steps are cut short", data.texts,
           {"C": 1.0, "loss": "squared_hinge", "tol": 1e-2}))),
    # -- compilation of kernels
    *(Case(f"first-{name}", "first", f"the first fit on a machine, {name}: kernels to be compiled, and"
         " their parts; set kernels=20 shows the slowest", first_fit.script, first_fit.first_fit,
         ("processor", "seconds", "kernels", "compiling"), {"name": name}, {"empty cache": {"cache":
         "empty"}, "full cache": {"cache": "full"}}, page=True) for name in first_fit.SCRIPTS),
    # -- passes, certificates, prediction
    Case("stream", "passes", "the streamed pass, ns for each row and position", data.windows,
         passes.stream, ("pass", "random update", "active", "rows"), {"every": 8},
         {f"d = {d}, {where}": {"d": d, "scratch": where == "scratch file"} for d in (6, 8, 10) for
         where in ("memory", "scratch file")}, page=True),
    Case("certify", "passes", "fcl certify against a pass", data.example, passes.certify, ("pass",
         "certify", "certify / pass", "active"), {}, axes(d=(4, 6, 8)), page=True),
    Case("predict", "passes", "prediction of windows", data.windows, prediction.predict, ("seconds",
         "M rows/s", "active"), {"every": 7}, axes(way=("memory", "zarr", "command")), command=True,
         page=True),
    Case("predict-genome", "passes", "fcl predict on a genome of 30 million bases",
         data.genome_to_score, prediction.score_genome, ("processor", "rows", "rows/s", "peak"), {},
         {"--sites": {"vcf": False}, "--vcf": {"vcf": True}}, command=True, page=True),
    # -- other families
    Case("products", "families", "products of columns of a9a", data.a9a, training.visits, ("seconds",
         "passes", "active", "objective", "gap", "largest", "visited", "share"), {"form":
         "sparse32"}, page=True),
    Case("fourier-mnist", "families", "even against odd digits", data.mnist, training.few_features,
         ("seconds", "active", "test error", "squared penalty", "gap", "passes"), {"target": "even",
         "n": 2048}, axes(C=(0.01, 0.03, 0.1)), page=True),
    Case("hinges", "families", "prices of hinges by bins, and by explicit columns", data.numbers,
         passes.hinge_prices, ("bins", "columns", "ratio", "features", "ns", "MB, bins",
         "MB, columns"), {}, axes(n=(4, 16, 64)), page=True),
    Case("lsgkm", "lsgkm", "5 folds beside LS-GKM; set positive, negative and gkmtrain", data.fasta,
         paths.lsgkm, ("AUROC", "AUPRC", "seconds", "peak", "active"), {},
         {"LS-GKM": {}, "one bag": {"features": "bag:d=6,strands=both,value=presence"}} | {
         f"two bags, d = {d}, {penalty}": {"features": "bag:d=6,strands=both + "
         f"bag:d={d},strands=both,wildcards=true,value=presence", "penalty": penalty}
         for d in (8, 10) for penalty in ("l1", "elastic:l1_ratio=0.1")}),
    # -- several classes
    softmax("news", "20 newsgroups, 20 classes", data.newsgroups, "fcl saga one-against-rest",
         group=None, C=0.1),
    softmax("mnist", "MNIST, 10,000 x 1,000 cosines", data.mnist_cosines, "fcl saga", C=0.03),
    softmax("splice", "UCI splice", data.splice, "fcl saga", d=4, C=0.1),
    Case("classes-mnist-group", "classes", "MNIST with the group norm", data.mnist_cosines,
         training.solve, OF_CLASSES, {"C": 0.03, "group": True}, {"fcl": {"method": "fcl"}, "adelie":
         {"method": "adelie"}}, SOFTMAX, page=True, patience=300.0),
    Case("classes-splice-group", "classes", "UCI splice with the group norm", data.splice,
         training.solve, OF_CLASSES, {"d": 4, "C": 0.1, "group": True}, {"fcl": {"method": "fcl"},
         "adelie": {"method": "adelie"}}, SOFTMAX, page=True, patience=300.0),
    Case("classes-train", "classes", "softmax on the families themselves", data.splice, training.train,
         FITS, {"d": 8, "known": False, "C": 0.1, "memory": "4GiB"}, axes(driver=("inline",
         "processes")), cores=0),
    # -- paths of C
    Case("path-windows", "paths", "20 points on windows", data.windows, paths.path, ("seconds",
         "points", "active", "gap", "reading", "ratio"), {"every": 40, "features":
         "kmers:d=8,origin=70", "C_max": 0.3}, {"path": {}, "last point": {"what": "last"},
         "each point": {"what": "singles"}, "5 folds": {"cv": 5, "points": 10}}, page=True),
    Case("path-a9a", "paths", "20 points on a9a", data.a9a, paths.path, ("seconds", "points",
         "active", "gap", "reading", "ratio"), {"C_range": "0.001;100"}, {"path": {}, "last point":
         {"what": "last"}, "each point": {"what": "singles"}, "5 folds": {"cv": 5}, "liblinear":
         {"what": "liblinear"}, "liblinear, 5 folds": {"what": "liblinear", "cv": 5}}, page=True),
    Case("path-processes", "paths", "8 points by drivers", data.windows, paths.path, ("seconds",
         "points", "active", "reading", "ratio"), {"every": 40, "features": "kmers:d=8,origin=70",
         "points": 8}, axes(driver=("inline", "processes")), cores=0),
    # -- tolerance, memory, files
    *(Case(f"tolerance-{name}", "tolerance", f"{name}: held-out accuracy for tolerances", make,
         training.tolerances, ("processor", "accuracy", "AUPRC", "weights off", "of 1e-6", "passes",
         "reason"), options, page=True) for name, make, options in (("a9a", data.a9a, {"form":
         "dense"}), ("20news", data.newsgroups, {}), ("magic", data.magic, {}), ("mnist",
         data.mnist, {"rows": 3000, "target": "3", "scale": False}), ("splice", data.splice, {"d":
         3, "known": False, "held": True}))),
    Case("memory-budgets", "memory", "peaks under budgets, from outside", data.window_files,
         commands.within_budget, BUDGET, {"features": "kmers:d=8,origin=70"}, axes(memory=("1GiB",
         "2GiB", "6GiB")), cores=0, command=True, page=True),
    Case("memory-wide", "memory", "windows of 16 times the budget", data.wide_window_files,
         commands.within_budget, BUDGET, {"x": "X", "memory": "768MiB", "max_time": "10m", "features":
         "kmers:d=8", "more": "--block-rows 3072 --max-passes 3"}, cores=0, command=True),
    *(Case(f"convert-{name}", "convert", f"fcl convert: {title}", convert_inputs.files,
         commands.convert, CONVERTED, {"name": name, "options": options, "memory": "512MiB"}, cores=0,
         command=True, page=True) for name, title, options in (("windows",
         "1 million sites (BED) of a genome of 84 MB", f"{CUT} --label 5"), ("bed3",
         "sites without names, labels and strands", CUT), ("svmlight", "a9a 100 times, 236 MB", ""),
         ("csv", "1 GB: 20 columns of numbers, one of text, a label", "--y y"), ("parquet",
         "2 million rows of 20 numbers", "--y y"), ("plink", "2,000 samples, 100,000 variants", ""),
         ("samples", "PLINK: 50,000 samples, 40,000 variants", ""))),
    # -- stagewise models
    *(Case(f"stagewise-{name}", "stagewise", f"MNIST: {title}, in one block", data.mnist,
         stagewise.table, STAGES, options, {"linear": {"update": "ls"}, "logistic, 50 steps":
         {"update": "gls", "inner": 50}, "calibrated": {"update": "cls", "rounds": 60, "shown":
         "3 20 60"}}, cores=0, page=page) for name, title, options, page in (("pixels", "pixels",
         {"block": 784}, True), ("4000", "4,000 cosines", {"kind": "cosines", "n": 4000, "gamma":
         0.006, "block": 4000}, True), ("8000", "8,000 cosines", {"kind": "cosines", "n": 8000,
         "gamma": 0.006, "block": 8000}, False))),
    Case("stagewise-curve", "stagewise", "MNIST: error against time, 20,480 cosines", data.mnist,
         stagewise.table, (*STAGES, "test loss"), {"kind": "cosines", "n": 20480, "shown":
         "quarters"}, {f"{name}, blocks of {block:,}": {**options, "block": block} for block in
         (512, 1024) for name, options in (("linear", {"update": "ls"}), ("calibrated, 1 round",
         {"update": "cls", "rounds": 1}), ("calibrated, 3 rounds", {"update": "cls", "rounds": 3}),
         ("logistic", {"update": "gls"}), ("linear, 3 visits", {"update": "ls", "visits": 3}))},
         picture=("stagewise-curve", "processor seconds", "test error on MNIST, %", "xy"),
         cores=0),
    Case("stagewise-peers", "stagewise", "MNIST: other libraries on 4,096 cosines", data.mnist,
         stagewise.compared, STAGES, {"n": 4096}, {"fcl, linear": {"kind": "cosines", "update":
         "ls", "visits": 3}, "fcl, calibrated": {"kind": "cosines", "update": "cls", "rounds": 3},
         "fcl, logistic": {"kind": "cosines", "update": "gls", "inner": 5},
         "fcl, linear, six times the features": {"kind": "cosines", "n": 24576, "update": "ls",
         "visits": 3}, **CLASSIFIERS}, picture=("stagewise-peers", "processor seconds",
         "test error on MNIST, %", "xy"), cores=0, page=True, patience=600.0),
    *(Case(f"stagewise-text-{split}", "stagewise", f"20 newsgroups by {split}", data.newsgroups,
         stagewise.compared, STAGES, {"group": None, "scale": "stagewise", "split": split},
         {**{f"fcl, blocks of {block:,}, {order}": {"block": block, "order": order, "alpha": 30.0,
         "visits": 2} for block in (500, 2000) for order in ("random", "gradient")}, **CLASSIFIERS},
         cores=0, page=split == "date", patience=600.0) for split in ("date", "random")),
    Case("stagewise-generators", "stagewise", "components of MNIST: kinds of features",
         data.mnist_components, stagewise.table, STAGES, {"update": "ls", "visits": 3, "gamma":
         0.006, "n": 1024}, axes(kind=("plain cosines", "logits 0.5", "logits 1", "logits 2",
         "polynomials")), cores=0),
    Case("stagewise-memory", "stagewise", "peak memory beside the plan", data.number_files,
         stagewise.memory, ("seconds", "plan", "peak", "peak / plan", "problems"), {"memory":
         "2GiB"}, cores=0, command=True),
    # -- clusters and object stores
    Case("cluster-overhead", "cluster", "a pass over 1,000 rows on local workers", data.nothing,
         cluster.overhead, ("pass",), {}, axes(workers=(1, 2, 3)), cores=0, page=True),
    Case("cluster-jobs", "cluster", "folds and scores as whole jobs", data.nothing, cluster.fan_out,
         ("seconds", "scores", "for a job", "bits", "ratio"), {}, axes(workers=(0, 1, 2)), cores=0,
         page=True),
    Case("remote", "remote", "an object store, 100 ms before each answer", cluster.stored_files,
         cluster.remote, ("seconds", "reading", "MB/s", "prepared", "pass", "trainer", "peak",
         "ratio"), {"rows": 1_500_000}, {"local disk": {"requests": 0}, **{f"{n} at once":
         {"requests": n} for n in (1, 8, 32)}}, cores=0, page=True),
    # -- online learners beside certified training
    Case("online-kmers", "which", "generated k-mers: a pass, and certified training", data.example,
         online_learners.which, WHICH, {"every": 4}, {f"d = {d}, {method}": {"d": d, "method": method}
         for d in (6, 8) for method in ("train", "ftrl")}),
    Case("online-long", "which", "bags of k-mers in sequences of 20,000 letters",
         online_learners.long_sequences, online_learners.which, WHICH, {"rates":
         "0.0005 0.002 0.008 0.03 0.125"}, axes(method=("train", "ftrl"))),
    Case("online-stream", "which", "20 newsgroups as svmlight lines in a pipe", online_learners.news,
         online_learners.svmlight_stream, ("processor", "rows/s", "above optimum", "active", "ratio"),
         {}, {"convert, train": {"method": "train"}, "online -":
         {"method": "online"}}, command=True),
    # -- online: learning in less memory
    Case("ram-speed", "ram", "nanoseconds of an update", data.nothing, online_learners.updates, ("MB",
         "ns, first", "ns, later"), {}, axes(p=(1 << 14, 1 << 22, 1 << 28), weights=("float32",
         "q2.13"))),
    Case("ram-huge", "ram", "10^9 weights, killed and resumed", data.nothing, online_learners.huge,
         ("rows/s", "from row", "peak", "table, MB", "touched", "bits"), {"p": 10**9}),
]
# fmt: on
CASES = {case.name: case for case in _ALL}
