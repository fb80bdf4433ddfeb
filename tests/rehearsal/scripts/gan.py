"""Trains two models with two optimizers: a critic several times, then a generator once."""

import argparse

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024))

    def forward(self, x):
        return self.net(x)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, x):
        return self.net(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--critic-steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    generator, critic = Generator().cuda(), Critic().cuda()
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for number in range(1, arguments.rounds + 1):
        noise, real = torch.randn(256, 64, device="cuda"), torch.randn(256, 1024, device="cuda")
        loss = critic(generator(noise).detach()).mean() - critic(real).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        print("critic", number, flush=True)
        if number % arguments.critic_steps == 0:
            of_generator.zero_grad()
            (-critic(generator(noise)).mean()).backward()
            of_generator.step()
            print("generator", flush=True)


main()
