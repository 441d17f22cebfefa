"""An ordinary Accelerate loop, run at each of four sites."""

from accelerate import Accelerator
from sites import Batches, State, federate
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD


def train(model: nn.Module, batches: Batches) -> State:
    """One epoch, two batches a step; the model that is sent."""
    accelerator = Accelerator(gradient_accumulation_steps=2)
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    for images, labels in batches:
        with accelerator.accumulate(model):
            accelerator.backward(cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
    return accelerator.get_state_dict(model)


if __name__ == "__main__":
    print(*[f"{accuracy:.3f}" for accuracy in federate(train)])
