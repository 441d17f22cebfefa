"""Papers that are a composition: their names, and the parameters under which they are known.

FedAvgM: "Measuring the Effects of Non-Identical Data Distribution …" (Hsu et al., 2019). FedAdam and FedYogi:
"Adaptive Federated Optimization" (Reddi et al., 2021). FedACG: "Communication-Efficient Federated Learning with
Accelerated Client Gradient" (Kim et al., 2024). FedExP: "Speeding Up Federated Averaging via Extrapolation"
(Jhunjhunwala et al., 2023). `DriftCorrection` is this package's own.
"""

from ecgr.algorithms.fedavg import FedAvg
from ecgr.algorithms.fedprox import FedProx
from ecgr.algorithms.protocol import Correction, ServerRule
from ecgr.algorithms.rules import Adam, Extrapolation, HeavyBall, Lookahead, Yogi
from ecgr.algorithms.scaffold import Scaffold
from ecgr.component import Fraction, Momentum, NonNegative, Positive, component


@component
class FedAvgM:
    """``fedavg/momentum``: FedAvg with momentum on the server.

    >>> FedAvgM()
    FedAvgM(server_lr=1.0, server_momentum=0.9)
    """

    server_lr: Positive = 1.0
    server_momentum: Momentum = 0.9

    def parts(self) -> tuple[Correction, ServerRule]:
        """What it stands for."""
        return FedAvg(), HeavyBall(lr=self.server_lr, momentum=self.server_momentum)


@component
class FedAdam:
    """``fedavg/adam``: Adam on the server, without bias correction, as in its paper.

    >>> FedAdam(server_lr=0.1)
    FedAdam(server_lr=0.1, beta1=0.9, beta2=0.99, tau=0.001)
    """

    server_lr: Positive = 0.01
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    tau: Positive = 1e-3

    def parts(self) -> tuple[Correction, ServerRule]:
        """What it stands for."""
        return FedAvg(), Adam(lr=self.server_lr, beta1=self.beta1, beta2=self.beta2, tau=self.tau)


@component
class FedYogi:
    """``fedavg/yogi``: as FedAdam, but the second moment moves by the sign of its error.

    >>> FedYogi()
    FedYogi(server_lr=0.01, beta1=0.9, beta2=0.99, tau=0.001)
    """

    server_lr: Positive = 0.01
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    tau: Positive = 1e-3

    def parts(self) -> tuple[Correction, ServerRule]:
        """What it stands for."""
        return FedAvg(), Yogi(lr=self.server_lr, beta1=self.beta1, beta2=self.beta2, tau=self.tau)


@component
class FedACG:
    """``fedprox/lookahead``: clients start where the server's momentum will lead, with a weak pull to that point.

    >>> FedACG(momentum=0.7)
    FedACG(momentum=0.7, mu=0.002)
    """

    momentum: Momentum = 0.85
    mu: NonNegative = 0.002

    def parts(self) -> tuple[Correction, ServerRule]:
        """What it stands for."""
        return FedProx(mu=self.mu), Lookahead(momentum=self.momentum)


@component
class FedExP:
    """``fedavg/exp``: the server's step is lengthened where the clients' updates are long beside their mean.

    >>> FedExP()
    FedExP(epsilon=0.001)
    """

    epsilon: Positive = 1e-3

    def parts(self) -> tuple[Correction, ServerRule]:
        """What it stands for."""
        return FedAvg(), Extrapolation(epsilon=self.epsilon)


@component
class DriftCorrection:
    """``scaffold(units=gradient)/lookahead``: damped control variates and a momentum that looks ahead.

    >>> DriftCorrection()
    DriftCorrection(damping=0.5, momentum=0.7)
    """

    damping: Fraction = 0.5
    momentum: Momentum = 0.7

    def parts(self) -> tuple[Correction, ServerRule]:
        """What it stands for."""
        return Scaffold(units="gradient", damping=self.damping), Lookahead(momentum=self.momentum)
