"""The server: one of Flower's own strategies, which knows nothing of regulation."""

from collections.abc import Callable, Mapping

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedProx, Strategy

from dropin.task import build_model, digits

STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "fedavg": lambda: FedAvg(fraction_evaluate=0.0),
    "fedprox": lambda: FedProx(fraction_evaluate=0.0, proximal_mu=0.1),
    "fedadam": lambda: FedAdam(fraction_evaluate=0.0, eta=0.03),
}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and say how good the model is after each."""
    settings = context.run_config
    strategy = STRATEGIES[str(settings["strategy"])]()
    config = ConfigRecord({"lr": float(settings["lr"]), "sites": int(settings["sites"])})
    start = ArrayRecord(build_model().state_dict())
    strategy.start(grid, start, int(settings["rounds"]), train_config=config, evaluate_fn=evaluate)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Accuracy of the global model on digits that no site trains on."""
    model = build_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    images, labels = digits(test=True)
    with torch.no_grad():
        right = model(images).argmax(dim=1) == labels
    return MetricRecord({"accuracy": float(right.float().mean())})
