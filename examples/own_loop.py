# SPDX-License-Identifier: Apache-2.0
"""Train a PyTorch model privately in a loop of your own. Needs PyTorch: pip install ".[torch]".

Run it with: python examples/own_loop.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp.torch import make_private

EPSILON, DELTA, EPOCHS = 2.0, 1e-5, 4

torch.manual_seed(1)  # of the made-up data and of the weights, not of the noise
inputs = torch.randn(2000, 10)
labels = (inputs[:, 0] + inputs[:, 1] > 0).long()
held_out = torch.randn(500, 10)

model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=100)

private = make_private(
    model,
    optimizer,
    loader,
    beta=2.0,  # Gaussian noise, the best for gradients clipped in the l_2 norm
    clip_norm=1.0,  # the most that one example may move a step
    target_epsilon=EPSILON,  # the noise is the least for which the whole run is certified
    delta=DELTA,
    epochs=EPOCHS,
)
model, optimizer, loader, accountant = private

for epoch in range(EPOCHS):
    for x, y in loader:  # batches are Poisson samples, so that their sizes differ
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()  # clips each example, adds noise, counts; raises before the budget is exceeded
    print(f"epoch {epoch + 1}: epsilon <= {accountant.epsilon(delta=DELTA).upper:.3f}")

trained = private.detach()  # an ordinary module again; publish it with the last epsilon
right = (trained(held_out).argmax(1) == (held_out[:, 0] + held_out[:, 1] > 0)).float().mean()
print(f"accuracy on other data: {right:.1%}")
assert accountant.epsilon(delta=DELTA).upper <= EPSILON
