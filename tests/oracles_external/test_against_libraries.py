"""Other people's implementations say the same, once definitions are aligned; `make oracles` installs and runs them.

What has to be aligned stands in ``docs/guide/methods.md``.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.special import softmax

from ecgr.algorithms import FedAvg, Population, Scaffold, Trace, Upload, compose
from ecgr.algorithms.server_rules import Adam, HeavyBall
from ecgr.analysis.statistics import equivalence_p, holm
from ecgr.streams import stream
from ecgr.tasks.metrics import METRICS
from ecgr.tasks.partition import Dirichlet

pytestmark = pytest.mark.nightly

Vector = NDArray[np.float64]
ROUNDS, SIZE, CLOSE = 12, 6, 3e-15
SIZES = (30, 10, 20)


def gradient_of(matrix: Vector, minimum: Vector, w: Vector) -> Vector:
    found: Vector = matrix @ (w - minimum)
    return found


def quadratics(seed: int = 0) -> list[Callable[[Vector], Vector]]:
    """The gradients of three clients' losses, each with a minimum of its own."""
    rng = stream(seed, "quadratics")
    found: list[Callable[[Vector], Vector]] = []
    for _ in SIZES:
        root, minimum = rng.normal(size=(SIZE, SIZE)), rng.normal(size=SIZE)
        matrix = root @ root.T / SIZE + np.eye(SIZE)
        found.append(partial(gradient_of, matrix, minimum))
    return found


def uploads(round_index: int, lengths: float = 0.1) -> list[Vector]:
    rng = stream(1, "uploads", round_index)
    return [lengths * rng.normal(size=SIZE) for _ in SIZES]


def test_scaffold_is_declearns() -> None:
    """Aligned: no momentum, equal weights of updates and controls, everybody takes part."""
    modules = pytest.importorskip("declearn.optimizer.modules", reason="`make oracles` installs declearn")
    vectors = pytest.importorskip("declearn.model.sklearn", reason="`make oracles` installs declearn")
    lr, steps, gradients = 0.05, 7, quadratics()
    ours = compose(Scaffold(control_weights="uniform"))
    start = torch.from_numpy(stream(2, "start").normal(size=SIZE))
    server, states = ours.init_server(start), [ours.init_client(start) for _ in gradients]
    theirs, theirs_server = start.numpy().copy(), modules.ScaffoldServerModule()
    theirs_clients = [modules.ScaffoldClientModule() for _ in gradients]
    params = start
    for _ in range(ROUNDS):
        results = []
        for client, gradient in enumerate(gradients):
            w = params.clone()
            term = ours.step_term(ours.broadcast(server), states[client])
            assert term is not None
            for _ in range(steps):
                w = w - lr * torch.from_numpy(gradient(w.numpy())) - lr * term
            trace = Trace(params - w, params - w, steps, lr, 0.0)
            states[client], payload = ours.finish(trace, ours.broadcast(server), states[client])
            results.append(Upload(client, 1, payload))
        params, server = ours.aggregate(params, server, results, Population(len(gradients), len(gradients)), lr)

        sent, collected, models = theirs_server.collect_aux_var(), [], []
        for module, gradient in zip(theirs_clients, gradients, strict=True):
            module.process_aux_var(sent)
            model = theirs.copy()
            for _ in range(steps):
                model = model - lr * module.run(vectors.NumpyVector({"w": gradient(model)})).coefs["w"]
            models.append(model)
            collected.append(module.collect_aux_var())
        theirs_server.process_aux_var(sum(collected[1:], collected[0]))
        theirs = theirs - np.mean([theirs - model for model in models], axis=0)
        np.testing.assert_allclose(params.numpy(), theirs, rtol=0, atol=CLOSE)


def replies(models: list[Vector]) -> list[Any]:
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # a message belongs to a run
    contents = (
        RecordDict({"arrays": ArrayRecord({"w": Array(model)}), "metrics": MetricRecord({"num-examples": size})})
        for model, size in zip(models, SIZES, strict=True)
    )
    return [Message(content, dst_node_id=1, message_type="train") for content in contents]


def step_of_ours(algorithm: Any, params: Any, server: Any, updates: list[Vector]) -> tuple[Any, Any]:
    results = [
        Upload(client, size, {"update": torch.from_numpy(update)})
        for client, (size, update) in enumerate(zip(SIZES, updates, strict=True))
    ]
    stepped: tuple[Any, Any] = algorithm.aggregate(params, server, results, Population(len(SIZES), sum(SIZES)), 1.0)
    return stepped


def test_fedavgm_is_flowers() -> None:
    """Nothing to align: weights by examples, ``v' = m v + u``, ``w - lr v'``."""
    strategy_module = pytest.importorskip("flwr.serverapp.strategy", reason="the flower extra is not installed")
    from flwr.app import Array, ArrayRecord

    strategy = strategy_module.FedAvgM(server_learning_rate=0.8, server_momentum=0.7)
    params = torch.from_numpy(stream(2, "start").normal(size=SIZE))
    algorithm = compose(FedAvg(), HeavyBall(lr=0.8, momentum=0.7))
    server = algorithm.init_server(params)
    strategy.current_arrays = ArrayRecord({"w": Array(params.numpy())})
    for index in range(ROUNDS):
        before = params.numpy()
        params, server = step_of_ours(algorithm, params, server, uploads(index))
        found, _ = strategy.aggregate_train(index + 1, replies([before - update for update in uploads(index)]))
        np.testing.assert_allclose(params.numpy(), found["w"].numpy(), rtol=0, atol=CLOSE)


def test_fedadam_is_flowers_without_its_bias_correction() -> None:
    """Aligned: second moments begin at 0, and the step has flwr's correction of bias, with exponent round + 1."""
    strategy_module = pytest.importorskip("flwr.serverapp.strategy", reason="the flower extra is not installed")
    eta, beta1, beta2, tau = 0.05, 0.9, 0.99, 1e-3
    strategy = strategy_module.FedAdam(eta=eta, beta_1=beta1, beta_2=beta2, tau=tau)
    params = torch.from_numpy(stream(2, "start").normal(size=SIZE))
    server = compose(FedAvg(), Adam(lr=eta, beta1=beta1, beta2=beta2, tau=tau)).init_server(params)
    server = {name: torch.zeros_like(tensor) for name, tensor in server.items()}
    for index in range(ROUNDS):
        before = params.numpy()
        corrected = eta * np.sqrt(1 - beta2 ** (index + 2)) / (1 - beta1 ** (index + 2))
        algorithm = compose(FedAvg(), Adam(lr=float(corrected), beta1=beta1, beta2=beta2, tau=tau))
        params, server = step_of_ours(algorithm, params, server, uploads(index))
        strategy.current_arrays = {"w": before}
        found, _ = strategy.aggregate_train(index + 1, replies([before - update for update in uploads(index)]))
        np.testing.assert_allclose(params.numpy(), found["w"].numpy(), rtol=0, atol=CLOSE)


def test_holm_is_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="`make oracles` installs statsmodels")
    for seed in range(20):
        p = stream(seed, "p").random(1 + seed) ** 3
        np.testing.assert_allclose(holm(p.tolist()), multitest.multipletests(p, method="holm")[1], rtol=CLOSE)


@pytest.mark.parametrize("margin", [0.05, 0.2, 1.0])
def test_equivalence_is_statsmodels_tost(margin: float) -> None:
    weightstats = pytest.importorskip("statsmodels.stats.weightstats", reason="`make oracles` installs statsmodels")
    for seed in range(20):
        differences = stream(seed, "differences").normal(loc=0.05, scale=0.1, size=3 + seed)
        theirs = weightstats.DescrStatsW(differences).ttost_mean(-margin, margin)[0]
        assert equivalence_p(differences.tolist(), margin) == pytest.approx(float(theirs), rel=1e-9, abs=CLOSE)


SKLEARN: dict[str, Callable[[Any, Vector, Any], float]] = {
    "accuracy": lambda m, scores, y: m.accuracy_score(y, scores.argmax(1)),
    "balanced_accuracy": lambda m, scores, y: m.balanced_accuracy_score(y, scores.argmax(1)),
    "macro_f1": lambda m, scores, y: m.f1_score(y, scores.argmax(1), average="macro"),
    "auc": lambda m, scores, y: m.roc_auc_score(y, softmax(scores, axis=1), multi_class="ovr"),
}


@pytest.mark.parametrize("name", sorted(SKLEARN))
def test_metrics_are_scikit_learns(name: str) -> None:
    """Over shards of unequal sizes, as clients have them; AUC is one against the rest, classes weighted alike."""
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    for seed in range(5):
        rng = stream(seed, "scores")
        targets = np.concatenate([np.arange(4), rng.integers(4, size=200)])
        scores = rng.normal(size=(204, 4)) + 1.5 * np.eye(4)[targets]
        metric: Any = METRICS[name]()
        parts = [metric.part(s, t) for s, t in zip(np.split(scores, [7, 90]), np.split(targets, [7, 90]), strict=True)]
        assert metric.value(parts) == pytest.approx(SKLEARN[name](metrics, scores, targets), rel=CLOSE)


def test_dirichlet_partitions_are_distributed_as_flowers() -> None:
    """The same law up to rounding: flwr-datasets cuts at truncated cumulative shares, here the largest remainders get
    what is left over. So a client's share of a class may differ by one sample of a hundred, and no more."""
    partitioner = pytest.importorskip("flwr_datasets.partitioner", reason="`make oracles` installs flwr-datasets")
    datasets = pytest.importorskip("datasets", reason="`make oracles` installs datasets")
    labels, clients, alpha, draws = np.repeat(np.arange(3), 100), 5, 0.5, 200
    source = datasets.Dataset.from_dict({"label": labels.tolist()})
    ours, theirs = [], []
    for seed in range(draws):
        ours.append(Dirichlet(alpha=alpha)(labels, clients, stream(seed, "partition")).histogram(labels, 3))
        other = partitioner.DirichletPartitioner(clients, "label", alpha, min_partition_size=0, seed=seed)
        other.dataset = source
        parts = [np.array(other.load_partition(client)["label"]) for client in range(clients)]
        theirs.append(np.stack([np.bincount(part.astype(int), minlength=3) for part in parts]))
    mine, its = np.stack(ours), np.stack(theirs)
    assert (mine.sum(1) == 100).all()
    assert (its.sum(1) == 100).all()
    for one, other in (
        (mine.max(1), its.max(1)),
        (mine[:, 0, 0], its[:, 0, 0]),
        (mine.sum(2).std(1), its.sum(2).std(1)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # ties: counts are whole
            assert stats.ks_2samp(one.ravel(), other.ravel()).pvalue > 0.01
    law = stats.beta(alpha, alpha * (clients - 1))
    assert abs(mine[:, 0, 0].mean() / 100 - law.mean()) < 0.06
