"""What the README of commit c5aec24 (version 0.1.0) told people to type goes on working.

The commands, options, keys and imports below are copied from that commit and are not kept up to date: others
may be added beside them, and none of them may go.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.main import get_command

import raffed
from raffed.cli.app import app
from raffed.cli.submitting import SUBMITTED, checked
from raffed.config.run import RunConfig
from raffed.config.toml import parse_toml

COMMANDS = (
    "compare --method fedavg --method fedrs --method fedmr --method map --dataset digits --split p10c2 "
    "--local-test 0.2 --clients-per-actor 1 --rounds 20 --epochs 5 --batch-size 16 --out demo",
    "run --method fedmr --set mu1=0.1 --set mu2=0.01 --dataset digits --split p10c2 --rounds 20 --out runs/a",
    "run exp.toml --seed 1",
    "resume runs/a",
    "verify runs/a",
    "report runs/ --out report/",
    "report runs/ sweeps/ reproduce/ --out report/",
    "methods",
    "methods fedmr",
    "datasets",
    "models",
    "splits",
    "splits p10c2 --draw out.png",
    "splits p10c2 --save PATH",
    "doctor",
    "doctor --method map --split iid:100 --batch-size 16",
    "tune --method fedavg --method fedmr --dataset digits --split p10c2 --local-test 0.2 --rounds 10 "
    "--epochs 2 --out sweeps/a",
    "tune --resume --out sweeps/a",
    "tune --method fedmr --grid mu1=0.1,1 --grid local.lr=0.01,0.1 --scheduler asha --search optuna "
    "--budget 2h --at-once 4 --trials 4 --select mean --protocol paper --out sweeps/b",
    "reproduce --list",
    "reproduce fedmr/table6 --only fmnist",
    'reproduce map/table1 --scale full --only "famnist lenet" --only fedavg,fedrs,map --budget 8h '
    "--data-root data",
    "reproduce map/table1 --released --tables",
    "submit run --method map --out s3://bucket/a",
    "report s3://bucket/a --out report",
    "verify s3://bucket/a",
    "run --execution serial --cohort 100 --precision bf16",
    "run --gpu-fraction 0.25",
    "run --preset authors --weighting samples --survey 10 --validation 0.2 --faults plan.toml",
    "run --tensorboard DIR --mlflow URI --wandb PROJECT --transform plain --threads 1 --download",
)
OPTIONS = {
    "compare": (
        "--actors --address --batch-size --checkpoint-every --clients-per-actor --clip-norm "
        "--clip-update --cohort --data-root --dataset --delta --download --drop-last --epochs "
        "--eval-every --execution --faults --gpu-fraction --json --keep-checkpoints --keep-last "
        "--local-test --lr --masks --max-restarts --measures --method --min-steps --model "
        "--model-arg --momentum --no-download --no-masks --noise --noise-at --out --participation "
        "--precision --preset --quiet --rounds --samples --seed --set --split --survey --threads "
        "--transform --validation --warmup-rounds --weight-decay --weighting -q"
    ),
    "doctor": (
        "--actors --address --batch-size --checkpoint-every --clients-per-actor --clip-norm "
        "--clip-update --cohort --data-root --dataset --delta --download --drop-last --epochs "
        "--eval-every --execution --faults --gpu-fraction --json --keep-checkpoints --keep-last "
        "--local-test --lr --masks --max-restarts --measures --method --min-steps --model "
        "--model-arg --momentum --no-download --no-masks --noise --noise-at --participation "
        "--precision --preset --ray --rounds --samples --seed --set --split --survey --threads "
        "--transform --validation --warmup-rounds --weight-decay --weighting"
    ),
    "report": "--json --out",
    "reproduce": (
        "--actors --address --budget --checkpoint-every --clients-per-actor --data-root --execution "
        "--gpu-fraction --json --keep-checkpoints --list --max-restarts --only --out --plan "
        "--released --scale --seeds --tables --threads"
    ),
    "resume": (
        "--actors --address --checkpoint-every --clients-per-actor --execution --gpu-fraction "
        "--json --keep-checkpoints --max-restarts --mlflow --quiet --tensorboard --threads --wandb "
        "-q"
    ),
    "run": (
        "--actors --address --batch-size --checkpoint-every --clients-per-actor --clip-norm "
        "--clip-update --cohort --data-root --dataset --delta --download --drop-last --epochs "
        "--eval-every --execution --faults --gpu-fraction --json --keep-checkpoints --keep-last "
        "--local-test --lr --masks --max-restarts --measures --method --min-steps --mlflow --model "
        "--model-arg --momentum --no-download --no-masks --noise --noise-at --out --participation "
        "--precision --preset --quiet --rounds --samples --seed --set --split --survey "
        "--tensorboard --threads --transform --validation --wandb --warmup-rounds --weight-decay "
        "--weighting -q"
    ),
    "splits": "--data-root --dataset --download --draw --local-test --save --seed",
    "submit": "--address --env --id --no-wait --python --wait --working-dir",
    "tune": (
        "--actors --address --at-once --batch-size --budget --checkpoint-every --clients-per-actor "
        "--clip-norm --clip-update --cohort --data-root --dataset --delta --download --drop-last "
        "--epochs --eval-every --execution --faults --gpu-fraction --grid --json --keep-checkpoints "
        "--keep-last --local-test --lr --masks --max-restarts --measures --method --min-steps "
        "--model --model-arg --momentum --no-download --no-masks --noise --noise-at --out "
        "--participation --precision --preset --protocol --resume --rounds --samples --scheduler "
        "--search --seed --seeds --select --set --split --survey --threads --transform --trials "
        "--validation --warmup-rounds --weight-decay --weighting"
    ),
    "verify": "--json --rounds",
}
CONFIGURATION = """
method = "map"
seed = 1

[args]
alpha = 0.5

[data]
dataset = "digits"
split = "p10c2"
download = false
transform = "auto"
validation = 0.0
samples = 0

[model]
name = "mlp"
args = {}

[local]
lr = 0.03
momentum = 0.9
weight_decay = 1e-05
batch_size = 64
epochs = 5
drop_last = false
min_steps = 1
warmup_rounds = 0

[federation]
rounds = 20
participation = 1.0
eval_every = 1
survey = 0
measures = ""
weighting = ""

[numerics]
cohort = 0
precision = "fp32"

[faults]
drop = 0.0
late = 0.0
corrupt = 0.0
straggle = 0.0
straggle_share = 0.5
corrupt_kind = "nan"
at = ""

[privacy]
noise = 0.0
noise_at = "server"
delta = 1e-05
masks = false

[runtime]
execution = "serial"
actors = 0
clients_per_actor = 0
gpu_fraction = 0.0
threads = 1
max_restarts = 10
checkpoint_every = 10
keep_checkpoints = 3
"""
WITHOUT_A_DEFAULT = """
[data]
root = "data"
local_test = 0.2

[local]
clip_norm = 10.0

[privacy]
clip = 5.0

[runtime]
address = "auto"
"""
IDENTITY = "d6758e0f8e690ceeaf9462a5a0231794644fbd8dd18a13b0610f288a3cd86109"  # of CONFIGURATION at c5aec24
PLAN = 'straggle = 1.0\nat = "drop 0@1"\n'
IMPORTS = (
    "from raffed import Data, Faults, Federation, Local, Model, Numerics, Privacy, RunConfig, Runtime",
    "from raffed import RunResult",
    "from raffed import resume, run",
    "from raffed.core.context import Context, Forward",
    "from raffed.core.method import Method, Term",
    "from raffed.data.datasets import load_dataset",
    "from raffed.data.partition import Partition",
    "from raffed.methods import METHODS",
    "from raffed.analysis import load_runs, summary, to_latex",
    "import raffed.tune_spaces",
)
METHOD = '''
# FedProx; raffed/methods/fedprox.py adds the variants of two papers
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.method import Method, Term


class Proximal(Term):
    """(μ/2) ‖w − w^t‖², trainable parameters only."""

    mu: float

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.mu / 2 * (f.w - k.w0).sq_norm()


def fedprox(mu: float = 0.01) -> Method:
    return Method("FedProx", terms=(Proximal(mu),))
'''


@pytest.fixture(scope="module")
def group() -> Any:
    return get_command(app)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_old_readme_is_parsed(line: str, group: Any) -> None:
    words = shlex.split(line)
    if words[0] == "submit":
        group.commands["submit"].make_context("submit", words[1:])
        inner = next(i for i, word in enumerate(words) if word in SUBMITTED)
        checked(words[inner], words[inner + 1 :], group)
    else:
        group.commands[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_has_all_options_that_it_had(command: str, group: Any) -> None:
    known = {name for one in group.commands[command].params for name in (*one.opts, *one.secondary_opts)}
    assert [name for name in OPTIONS[command].split() if name not in known] == []


def test_a_file_with_every_old_key_is_read_and_has_the_identity_that_it_had() -> None:
    tables = parse_toml(CONFIGURATION, "exp.toml")
    config = RunConfig.from_dict(tables)
    assert config.identity() == IDENTITY
    written = config.as_dict()
    for name, value in tables.items():
        if isinstance(value, dict):
            assert {key: written[name][key] for key in value} == value
        else:
            assert written[name] == value


def test_old_keys_that_have_no_default_are_read() -> None:
    config = RunConfig.from_dict(parse_toml(WITHOUT_A_DEFAULT, "exp.toml"))
    assert (config.data.root, config.data.local_test) == ("data", 0.2)
    assert (config.local.clip_norm, config.privacy.clip, config.runtime.address) == (10.0, 5.0, "auto")


def test_an_old_plan_of_faults_is_read_as_a_table_and_as_a_section() -> None:
    alone = RunConfig.from_dict({"faults": parse_toml(PLAN, "plan.toml")})
    assert alone == RunConfig.from_dict(parse_toml(f"[faults]\n{PLAN}", "exp.toml"))
    assert (alone.faults.straggle, alone.faults.at) == (1.0, "drop 0@1")


def test_the_old_call_in_python_makes_the_run_that_the_file_makes() -> None:
    config = raffed.RunConfig(method="map", args={"alpha": 0.5})
    assert config == RunConfig.from_dict({"method": "map", "args": {"alpha": 0.5}})


@pytest.mark.parametrize("line", IMPORTS)
def test_what_the_old_readme_imports_is_there(line: str) -> None:
    exec(compile(line, "README.md of c5aec24", "exec"), {})


def test_the_method_that_the_old_readme_writes_can_be_made() -> None:
    names: dict[str, Any] = {"__name__": "written_after_the_old_readme"}
    exec(compile(METHOD, "README.md of c5aec24", "exec", dont_inherit=True), names)
    [term] = names["fedprox"](mu=0.1).terms
    assert term.mu == 0.1
