"""Grids: what a file says is what will run, and what is wrong with it is said in a sentence."""

from __future__ import annotations

import pytest

import d2ace
from d2ace._util.errors import UserError
from d2ace.benchmark.plan.grid import load_grid, make_grid, packaged
from d2ace.benchmark.plan.specs import METHODS
from d2ace.benchmark.plan.studies import ABLATION, ablation, parse_value, parse_vary, sweep

SMALL = {"datasets": ["digits"], "models": ["mlp"]}


@pytest.fixture(autouse=True)
def _no_datasets(monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("D2ACE_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "cache"))


def repeated(root, name):
    """A grid of the experiments that were repeated; it is not in the package."""
    return load_grid(root / "reproduction" / "grids" / f"{name}.toml")


def axes(grid):
    """What a grid covers: datasets, models, methods, folds, seeds."""
    specs = grid.specs
    values = (
        [spec.dataset for spec in specs],
        [spec.model for spec in specs],
        [spec.method for spec in specs],
        [spec.config["fold"] for spec in specs],
        [spec.config["seed"] for spec in specs],
    )
    return tuple(list(dict.fromkeys(value)) for value in values)


EIGHT = [*METHODS.values()][:8]  # those of the paper
NINE = [*EIGHT, "D2ACE (reference)"]
PAPER = [
    *("birds", "cal500", "yeast", "enron", "scene", "yahoo-arts1", "yahoo-business1", "bibtex"),
    *("corel5k", "rcv1subset1", "rcv1subset2", "rcv1subset3", "mediamill"),
]
FIVE = [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "expected", "runs"),
    [
        (
            "paper-tabular",
            (PAPER, ["CLIF", "DELA", "PACA"], EIGHT, FIVE, [0]),
            13 * 3 * 8 * 5,
        ),
        (
            "reproduction-1",
            (
                ["emotions", "birds", "scene", "yeast", "cal500", "enron"],
                ["CLIF (reference)"],
                NINE,
                FIVE,
                [0],
            ),
            6 * 9 * 5,
        ),
        (
            "reproduction-2",
            (["emotions", "birds", "yeast"], ["CLIF"], NINE, FIVE, [0]),
            3 * 9 * 5,
        ),
        (
            "reproduction-3",
            (["emotions", "birds", "scene"], ["DELA", "PACA"], NINE, FIVE, [0]),
            3 * 2 * 9 * 5,
        ),
        (
            "reproduction-4",
            (["emotions", "birds", "yeast"], ["CLIF (reference)"], NINE, FIVE, [1]),
            3 * 9 * 5,
        ),
        (
            "reproduction-6",
            (["bibtex"], ["CLIF"], ["Random", "DIHCL", "Hard-Imb", "ML-Unc", "D2ACE"], [0], [0]),
            5,
        ),
    ],
)
def test_grids_of_the_repeated_experiments(root, name, expected, runs):
    grid = repeated(root, name)
    assert grid.name == name
    assert axes(grid) == expected
    assert len(grid.specs) == len({spec.key for spec in grid.specs}) == runs
    settings = {"epochs": 100, "batch_size": 128, "warmup": 10, "folds": 5}
    assert all(settings.items() <= spec.config.items() for spec in grid.specs)


def test_the_packaged_grid_is_a_small_one():
    grid = load_grid("quick")
    usual = {"DIHCL": 'DIHCL (original, pace="steps")'}
    methods = [usual.get(name, name) for name in METHODS.values()]
    assert axes(grid) == (["digits"], ["CLIF", "MLP"], methods, [0, 1], [0])
    assert len(grid.specs) == len({spec.key for spec in grid.specs}) == 2 * len(methods) * 2


def test_the_grid_that_asks_why_is_not_mixed_with_the_comparison(root):
    specs = repeated(root, "reproduction-why").specs
    assert {spec.study for spec in specs} == {
        "longer",
        "stored order",
        "preprocessing",
        "chosen K",
        "every row",
        "chosen weights",
    }
    assert len(specs) == (5 + 2 + (4 + 3) * 3 + 2 * 2 + 2 * 6 + 2 * 3 + 2) * 5
    for spec in specs:
        assert spec.config["epochs"] == (300 if spec.study == "longer" else 100)
        assert spec.config["protocol"] == (
            "reference" if spec.study == "preprocessing" else "paper"
        )


def test_variants_of_d2ace_are_compared_with_the_runs_of_the_comparison(root):
    compared = [*repeated(root, "reproduction-1").specs, *repeated(root, "reproduction-4").specs]
    done = {spec.key for spec in compared}
    specs = [spec for spec in repeated(root, "reproduction-why").specs if spec.key not in done]
    new = {(spec.method, *spec.config["selector_options"].items()) for spec in specs}
    assert new > {(f"D2ACE (K = {k})", ("neighbors", k)) for k in (4, 5, 7, 8)}
    assert new > {("D2ACE (full pass)", ("predictions", "full_pass"))}
    assert new > {("Random (stored order)", ("preset", "reference"))}
    assert len({spec.key for spec in specs}) == (5 + 2 + 4 + 3 + 2 * 2 + 2 * 4 + 2 * 1 + 2) * 5


def test_ablations_sweeps_and_case_studies_in_one_file(root):
    specs = repeated(root, "reproduction-5").specs
    studies = {study: [s for s in specs if s.study == study] for study in ("ablation", "sweep")}
    assert {s.dataset for study in studies.values() for s in study} == {"birds", "cal500"}
    assert {s.config["fold"] for study in studies.values() for s in study} == {0, 1, 2}
    assert [s.method for s in studies["ablation"]][:11] == [*ABLATION]
    labels = {s.method for s in studies["sweep"]}
    assert {"K=0", "K=6", "K=n", "lambda2=0.7", "p_start=0.7, p_end=0.3"} <= labels
    case = [s for s in specs if s.study == "case"]
    assert {s.config["fold"] for s in case} == {0}
    labelled = {"Balance", "Hard-Imb", "D2ACE"}  # methods with weights of labels
    assert {s.method for s in case if s.dataset == "corel5k"} == labelled
    assert {s.method for s in case if s.dataset == "cal500"} == {*labelled, "ML-Unc"}
    assert all(s.config["record"] for s in case)


def test_the_same_work_is_planned_once(root):
    specs = repeated(root, "reproduction-5").specs
    same = {"A", "K=6", "lambda2=0.7", "p_start=0.7, p_end=0.3"}
    birds = [s for s in specs if s.dataset == "birds" and s.config["fold"] == 0]
    assert len({s.key for s in birds if s.method in same}) == 1


def test_all_grids_say_what_they_are(root):
    descriptions = packaged()
    assert set(descriptions) == {"quick"}
    for path in (root / "reproduction").rglob("*.toml"):
        descriptions[path.stem] = load_grid(path).description
    steps = (*range(1, 7), "why")
    assert set(descriptions) >= {
        "paper-tabular",
        "corel5k-images",
        *(f"reproduction-{step}" for step in steps),
    }
    assert all(description.endswith(".") for description in descriptions.values())


def test_where_data_is_missing_the_quick_grid_says_what_it_takes():
    assert load_grid("quick").notes == ["emotions: not on this machine, digits is taken instead"]


def test_order_of_runs():
    grid = make_grid({**SMALL, "models": ["mlp", "clif"], "selectors": ["random", "d2ace"]})
    titles = [(s.model, s.config["fold"], s.method) for s in grid.specs]
    assert titles[:3] == [("MLP", 0, "Random"), ("MLP", 0, "D2ACE"), ("MLP", 1, "Random")]
    assert titles[10] == ("CLIF", 0, "Random")


def test_a_file_with_tables_and_settings(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("""
datasets = ["digits", {name = "rcv1subset1", repair = true, batch_size = 64}]
models = [{name = "clif", options = {preset = "reference"}}, {name = "mlp", options = {h = 32}}]
selectors = ["ml_unc", {name = "d2ace", options = {mix = [1, 1]}}, {name = "dihcl", label = "mine"}]
run_folds = [3]
seeds = [5]
name = "pilot"
epochs = 7
monitor = "ranking_loss"
""")
    grid = load_grid(path)
    assert axes(grid) == (
        ["digits", "rcv1subset1 (repaired)"],
        ["CLIF (reference)", "MLP (h=32)"],
        ["ML-Unc", "D2ACE (mix=[1,1])", "mine"],
        [3],
        [5],
    )
    assert {spec.study for spec in grid.specs} == {"pilot"}
    assert {(s.config["epochs"], s.config["monitor"]) for s in grid.specs} == {(7, "ranking_loss")}
    assert {s.config["batch_size"] for s in grid.specs if s.config["repair"]} == {64}
    changed = load_grid(path, {"epochs": 3, "models": ["mlp"]})
    assert {(s.config["epochs"], s.model) for s in changed.specs} == {(3, "MLP")}


def test_data_files_of_the_same_name(tmp_path):
    from d2ace.data import make_multilabel, save
    from d2ace.report.naming import tell_apart

    for place, name in enumerate(("a/mine.npz", "b/mine.npz", "b/birds.npz")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save(make_multilabel(60, 4, 3, seed=place), tmp_path / name)
    path = tmp_path / "grid.toml"
    path.write_text(
        'datasets = ["a/mine.npz", "b/mine.npz", "b/birds.npz", "birds"]\n'
        'models = ["mlp"]\nselectors = ["random"]\nrun_folds = [0]\n'
    )
    specs = load_grid(path).specs
    assert len({spec.key for spec in specs}) == 4
    names = tell_apart(specs)
    assert [names[spec.key] for spec in specs] == ["a/mine", "b/mine", "b/birds", "birds"]
    first, same = specs[0], tell_apart(specs[:1], specs[1:2])
    assert same[first.key] == "mine"  # each of two stores has but one


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('dataset = ["digits"]', r"unknown key 'dataset' \(did you mean 'datasets'\?\)"),
        ('models = ["mlp"]', r"\[\"emotions\"\] \(typed: --datasets emotions\), but there"),
        ('datasets = ["digit"]\nmodels = ["mlp"]', "no dataset and no file is called 'digit'"),
        ('datasets = ["digits"]\nmodels = ["clf"]', r"no model 'clf' \(did you mean 'clif'\?\)"),
        (
            'datasets = ["digits"]\nmodels = [{name = "mlp", options = {H = 3}}]',
            "mlp has no hyperparameter 'H'",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nselectors = ["dace"]',
            r"no selector 'dace' \(did you mean 'd2ace'\?\)",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\n'
            'selectors = [{name = "d2ace", options = {neighbours = 3}}]',
            r"D2ACE has no option 'neighbours' \(did you mean 'neighbors'\?\)",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\n'
            'selectors = [{name = "d2ace", options = {trade_off = 3}}]',
            "trade_off must",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nselectors = ["mine.py:Mine"]',
            r"there is no file mine\.py for the selector",
        ),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nepochs = "ten"', "epochs is 'ten'"),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nmonitor = "auc"', "monitor is 'auc'"),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nrun_folds = [7]', "fold is 7, but with folds=5"),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nseeds = [1, 1]', r"different .*got \[1, 1\]"),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nkind = "sweeep"', "kind is 'sweeep'"),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nkind = "sweep"', "a sweep needs vary"),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nvary = {K = [1]}', "'vary' belongs to a study"),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nkind = "sweep"\nvary = {k = [1]}',
            "d2ace has no option 'k'",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nselectors = ["random", "random"]',
            "two selectors are called 'Random'",
        ),
        (
            'datasets = [{name = "digits", epoch = 3}]\nmodels = ["mlp"]',
            r"unknown key 'epoch' in datasets, entry 'digits' \(did you mean 'epochs'\?\)",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nkind = "ablation"\nvariants = 3',
            "variants must be a list .*, got 3",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nkind = "ablation"\nvariants = []',
            r"variants must be a list .*, got \[\]",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nkind = "ablation"\nselectors = ["random"]',
            "an ablation is of d2ace",
        ),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\nname = "sweep"',
            "name = 'sweep' belongs to kind = 'sweep'",
        ),
        ('[[studies]]\nname = "x"', r"unknown key 'studies' \(did you mean 'study'\?\)"),
        (
            'datasets = ["digits"]\nmodels = ["mlp"]\n'
            'selectors = [{name = "d2ace", options = {seed = 3}}]',
            "seed is a setting of the run, .* write seed = 3 beside the selectors",
        ),
        ('datasets = ["digits"]\nmodels = ["mlp"]\nrepair = "no"', "repair is 'no'"),
        ("datasets = [3]", "datasets holds 3"),
        ("datasets = [", "is not TOML"),
        ('study = "x"', r"\[\[study\]\] tables"),
    ],
)
def test_mistakes_are_reported_with_their_file(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        load_grid(path)
    assert "mine.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_grids_that_do_not_exist():
    with pytest.raises(UserError, match=r"no grid 'quik' \(did you mean 'quick'\?\)"):
        load_grid("quik")
    with pytest.raises(UserError, match=r"no grid file absent\.toml"):
        load_grid("absent.toml")


# Studies ------------------------------------------------------------------------------------


def test_ablation_variants_are_what_the_study_says():
    variants = {method.label: dict(method.options) for method in ablation()}
    assert list(variants) == list("ABCDEFGHIJK")
    assert variants["A"] == {}
    assert variants["B"] == {"mix": [0, 0]}
    assert variants["C"] == {"mix": [1, 1]}
    assert [variants[v]["mix"] for v in "DEF"] == [[c, c] for c in (0.3, 0.5, 0.7)]
    assert variants["G"] == {"label_weight": "none"}
    assert variants["H"] == {"correlation": "none"}
    assert variants["I"] == {"label_weight": "linear"}
    assert variants["J"] == {"weight_transform": "exp"}
    assert variants["K"] == {"mix_schedule": "exp"}
    with pytest.raises(UserError, match="no ablation 'L'"):
        ablation(["L"])


def test_sweeps_by_symbol_and_by_option():
    assert [m.label for m in sweep({"K": [0, 6, "n"]})] == ["K=0", "K=6", "K=n"]
    assert sweep({"neighbors": [3]}) == sweep({"K": [3]})
    (half,) = sweep({"lambda2": [0.5]})
    assert (half.options, half.label) == ({"flip_smoothing": 0.5}, "lambda2=0.5")
    pairs = sweep({"p_start": [0.9, 0.5], "p_end": [0.1]})
    assert [m.options["mix"] for m in pairs] == [[0.9, 0.1], [0.5, 0.1]]
    assert pairs[0].label == "p_start=0.9, p_end=0.1"


def test_command_line_options_override_those_of_a_dataset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'datasets = [{name = "digits", epochs = 20}]\nmodels = ["mlp"]\nrun_folds = [0]'
    )
    assert {spec.config["epochs"] for spec in load_grid(path).specs} == {20}
    assert {spec.config["epochs"] for spec in load_grid(path, {"epochs": 30}).specs} == {30}


def test_a_grid_that_only_warms_up_says_so(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('datasets = ["digits"]\nmodels = ["mlp"]\nrun_folds = [0]\nepochs = 10')
    (note,) = load_grid(path).notes
    assert note.startswith("11 of 12 runs: All 10 epochs are warm-up")
    assert load_grid(path, {"epochs": 11}).notes == []


def test_a_path_is_no_pair_of_numbers():
    assert parse_value("0.7/0.3") == [0.7, 0.3]
    assert parse_value("/data/coco") == "/data/coco"


def test_sweeps_as_typed():
    assert parse_vary("K=0,5,n") == {"K": [0, 5, "n"]}
    assert parse_vary("mix=0.7/0.3,1/1") == {"mix": [[0.7, 0.3], [1, 1]]}
    assert parse_vary("include_self=true,false") == {"include_self": [True, False]}
    assert "K" in parse_vary("K")
    for wrong in ("lambda3", "K=", "K=1,1", "warp=1"):
        with pytest.raises(UserError):
            sweep(parse_vary(wrong))


def test_all_rows_is_a_neighbourhood():
    (every,) = sweep({"K": ["n"]})
    import numpy as np

    labels = np.eye(4)
    made = d2ace.D2ACE(labels, np.eye(4), **every.options)
    exact = d2ace.D2ACE(labels, np.eye(4), neighbors=3)
    for selector in (made, exact):
        selector.observe([0, 1, 2, 3], probs=np.full((4, 4), 0.3))
    assert made.probabilities.tolist() == exact.probabilities.tolist()
