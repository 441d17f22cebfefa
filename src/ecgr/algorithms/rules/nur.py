"""The normalised update of FedMRUR: "Federated Learning with Manifold Regularization and Normalized Update
Reaggregation" (An et al., 2023)."""

from ecgr.algorithms.defaults import RuleDefaults
from ecgr.algorithms.protocol import Combined
from ecgr.component import Positive, State, Tensor, component, torch


@component
class NormUnion(RuleDefaults):
    """Step in the direction of the mean update, as far as the clients' updates are long on average.

    Where clients disagree, their mean is shorter than any of them; this gives the step their length back.

    >>> NormUnion()
    NormUnion(lr=1.0)
    """

    lr: Positive = 1.0

    def step(self, params: Tensor, combined: Combined, state: State, lr: float) -> tuple[Tensor, State]:
        """``w - lr u (sum p_i |u_i|) / |u|``."""
        length = float(torch.linalg.vector_norm(combined.update, dtype=torch.float64))
        stretch = combined.mean_norm() / length if length else 1.0
        return params - (self.lr * stretch) * combined.update, state
