"""Networks that draw from distributions, or compute losses, in their own forward."""

import torch
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn import functional as F

from .entry import Entry, at_least, floats


class Latent(nn.Module):
    """3 -> fc 11 -> mean, width 7 -> draw 7 (in training) -> fc 13 -> 5; divergence."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 11)
        self.mean, self.log_width = nn.Linear(11, 7), nn.Linear(11, 7)
        self.decoder = nn.Sequential(nn.Linear(7, 13), nn.ELU(), nn.Linear(13, 5))

    def forward(self, x):
        hidden = torch.tanh(self.stem(x))
        found = Normal(self.mean(hidden), self.log_width(hidden).exp())
        drawn = found.rsample() if self.training else found.mean
        prior = Normal(torch.zeros_like(drawn), torch.ones_like(drawn))
        return self.decoder(drawn), kl_divergence(found, prior).sum(-1)


class Policy(nn.Module):
    """3 -> fc 11 -> fc 13 -> how likely the best of 5 actions is, and the doubt."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 11), nn.Tanh(), nn.Linear(11, 13))
        self.action = nn.Linear(13, 5)

    def forward(self, x):
        policy = Categorical(logits=self.action(F.elu(self.body(x))))
        return policy.log_prob(policy.probs.argmax(-1)), policy.entropy()


class Triplet(nn.Module):
    """Three of 3 -> fc 11 -> fc 13, of length one; a loss of their distances."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 11), nn.PReLU(), nn.Linear(11, 13))

    def forward(self, anchor, same, other):
        anchor, same, other = (
            F.normalize(self.net(x), dim=-1) for x in (anchor, same, other)
        )
        return F.triplet_margin_loss(anchor, same, other, margin=0.2)


class Trained(nn.Module):
    """3 -> fc 11 -> 3 again, and 5 classes; every loss that comes of both."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 11), nn.Linear(11, 3)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        code = F.silu(self.encoder(x))
        back, scores = self.decoder(code), self.head(code)
        classes = torch.zeros(len(x), dtype=torch.long)
        likely = torch.full_like(scores, 0.3)
        return {
            "squared": F.mse_loss(back, x),
            "smooth": F.smooth_l1_loss(back, x, reduction="none").sum(-1),
            "robust": F.huber_loss(back, x, reduction="sum"),
            "absolute": F.l1_loss(back, x),
            "classes": F.cross_entropy(scores, classes, label_smoothing=0.1),
            "yes": F.binary_cross_entropy_with_logits(scores, likely),
            "no": F.binary_cross_entropy(scores.sigmoid(), likely, reduction="none"),
            "divergence": F.kl_div(scores.log_softmax(-1), likely, reduction="sum"),
        }


class Distilled(nn.Module):
    """3 -> fc 11 -> 5; and how far its code is from that of another."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(3, 11), nn.Linear(3, 11)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        code, wanted = self.student(x), self.teacher(x).detach()
        return self.head(code), F.mse_loss(code, wanted, reduction="sum") / 20


VECTOR = floats(2, 3)


def three_vectors():
    return tuple(torch.randn(4, 3, dtype=torch.float64) for _ in range(3))


ENTRIES = {
    "latent": Entry(Latent, VECTOR, expect=at_least(2)),
    "policy": Entry(Policy, VECTOR, expect=at_least(2)),
    "triplet": Entry(Triplet, three_vectors, expect=at_least(1)),
    "trained": Entry(Trained, VECTOR, expect=at_least(1)),
    "distilled": Entry(Distilled, VECTOR, expect=at_least(1)),
}
