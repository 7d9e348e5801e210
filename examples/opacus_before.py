# SPDX-License-Identifier: Apache-2.0
"""A script that trains with Opacus and its own accountant. opacus_after.py has a certified epsilon.

Needs Opacus: pip install ".[opacus]". Run it with: python examples/opacus_before.py
"""

import torch
from opacus import PrivacyEngine

torch.manual_seed(1)
features, labels = torch.randn(512, 20), torch.randint(3, (512,))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features, labels), batch_size=64)
model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

privacy_engine = PrivacyEngine(accountant="rdp")
model, optimizer, loader = privacy_engine.make_private(
    module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.1, max_grad_norm=1.0
)
for _ in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

print(f"epsilon is at most {privacy_engine.get_epsilon(delta=1e-5):.4f}")
