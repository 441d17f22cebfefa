"""The client."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import ecgr
from dropin.task import build_model, fit, share

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on this site's data and send the model back."""
    model = build_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    config = message.content["config"]
    batches = share(int(context.node_config["partition-id"]), int(config["sites"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=float(config["lr"]), momentum=0.9)
    with ecgr.Recorder(model, optimizer) as steps:
        loss = fit(model, optimizer, batches, mu=float(config.get("proximal-mu", 0.0)))
    steps.regulated(ecgr.ECGR(beta=0.2)).apply_(model)
    metrics = MetricRecord({"num-examples": len(batches.dataset), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
