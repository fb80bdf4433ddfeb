"""Scripts that train two models by turns, each with an optimizer of its own.

    turns.py KIND [--batch-size N]
"""

import argparse
import os

import torch
from torch import nn
from torch.nn import functional

WIDTH, NOISE, STEPS = 256, 64, 14


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks = nn.Linear(NOISE, WIDTH), nn.ModuleList(Block() for _ in range(4))
        self.last = nn.Linear(WIDTH, 784)

    def forward(self, noise):
        x = self.first(noise)
        for block in self.blocks:
            x = block(x)
        return torch.tanh(self.last(x))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks = nn.Linear(784, WIDTH), nn.ModuleList(Block() for _ in range(3))
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, image):
        x = self.first(image)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class ImageGenerator(nn.Module):
    """DCGAN's."""

    def __init__(self, width=64):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NOISE, width * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(width * 4), nn.ReLU(True),
            nn.ConvTranspose2d(width * 4, width * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 2), nn.ReLU(True),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )

    def forward(self, noise):
        return self.main(noise)


class ImageDiscriminator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, width * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width * 2, width * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 4), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width * 4, 1, 4, 1, 0, bias=False),
        )

    def forward(self, image):
        return self.main(image).view(-1)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999))


def two_mlps():
    """Generator, discriminator, and an optimizer of each."""
    generator, discriminator = Generator().cuda(), Discriminator().cuda()
    return generator, discriminator, adam(generator), adam(discriminator)


def mlp(batch):
    """One loss of real and fake images for the discriminator, then one for the generator."""
    generator, discriminator, of_generator, of_discriminator = two_mlps()
    loss_of = nn.BCEWithLogitsLoss()
    one, zero = torch.ones(batch, 1, device="cuda"), torch.zeros(batch, 1, device="cuda")
    for _ in range(STEPS):
        real, noise = torch.randn(batch, 784, device="cuda"), torch.randn(batch, NOISE, device="cuda")
        fake = generator(noise)
        loss = loss_of(discriminator(real), one) + loss_of(discriminator(fake.detach()), zero)
        of_discriminator.zero_grad()
        loss.backward()
        of_discriminator.step()
        loss = loss_of(discriminator(fake), one)
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
        print("step", flush=True)


def dcgan(batch):
    """As PyTorch's tutorial: the discriminator has a backward of real and one of fake images, and one step."""
    net_g, net_d = ImageGenerator().cuda(), ImageDiscriminator().cuda()
    optimizer_d, optimizer_g = adam(net_d), adam(net_g)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        net_d.zero_grad()
        real = torch.randn(batch, 3, 32, 32, device="cuda")
        label = torch.full((batch,), 1.0, dtype=torch.float, device="cuda")
        output = net_d(real).view(-1)
        err_real = criterion(output, label)
        err_real.backward()
        noise = torch.randn(batch, NOISE, 1, 1, device="cuda")
        fake = net_g(noise)
        label.fill_(0.0)
        output = net_d(fake.detach()).view(-1)
        err_fake = criterion(output, label)
        err_fake.backward()
        err_d = err_real + err_fake
        optimizer_d.step()
        net_g.zero_grad()
        label.fill_(1.0)
        output = net_d(fake).view(-1)
        err_g = criterion(output, label)
        err_g.backward()
        optimizer_g.step()
        print("step", err_d.item(), flush=True)


def critic(batch):
    """As a WGAN with clipped weights: several steps of the critic on images of their own for one of the generator."""
    generator, discriminator, of_generator, of_discriminator = two_mlps()
    for number in range(1, 3 * STEPS + 1):
        real, noise = torch.randn(batch, 784, device="cuda"), torch.randn(batch, NOISE, device="cuda")
        of_discriminator.zero_grad()
        fake = generator(noise).detach()
        loss = discriminator(fake).mean() - discriminator(real).mean()
        loss.backward()
        of_discriminator.step()
        if number % 3 == 0:
            of_generator.zero_grad()
            (-discriminator(generator(noise)).mean()).backward()
            of_generator.step()
            print("step", flush=True)


def ddp(batch):
    """Each model in DistributedDataParallel, under autocast."""
    torch.distributed.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    generator = nn.parallel.DistributedDataParallel(Generator().to(device), device_ids=[device.index])
    discriminator = nn.parallel.DistributedDataParallel(Discriminator().to(device), device_ids=[device.index])
    of_generator, of_discriminator = adam(generator), adam(discriminator)
    for _ in range(STEPS):
        real, noise = torch.randn(batch, 784, device=device), torch.randn(batch, NOISE, device=device)
        of_discriminator.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            fake = generator(noise)
            loss = discriminator(fake.detach()).mean() - discriminator(real).mean()
        loss.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = -discriminator(fake).mean()
        loss.backward()
        of_generator.step()
        if torch.distributed.get_rank() == 0:
            print("step", flush=True)


def generator_first(batch):
    """The generator learns first; the discriminator from the same images."""
    generator, discriminator, of_generator, of_discriminator = two_mlps()
    loss_of = nn.BCEWithLogitsLoss()
    one, zero = torch.ones(batch, 1, device="cuda"), torch.zeros(batch, 1, device="cuda")
    for _ in range(STEPS):
        real = torch.randn(batch, 784, device="cuda")
        of_generator.zero_grad()
        fake = generator(torch.randn(batch, NOISE, device="cuda"))
        g_loss = loss_of(discriminator(fake), one)
        g_loss.backward()
        of_generator.step()
        of_discriminator.zero_grad()
        d_loss = (loss_of(discriminator(real), one) + loss_of(discriminator(fake.detach()), zero)) / 2
        d_loss.backward()
        of_discriminator.step()
        print("step", d_loss.item(), g_loss.item(), flush=True)


def penalty(batch):
    """As a WGAN with a gradient penalty: a backward through a backward."""
    generator, discriminator, of_generator, of_discriminator = two_mlps()
    for _ in range(STEPS):
        real, noise = torch.randn(batch, 784, device="cuda"), torch.randn(batch, NOISE, device="cuda")
        of_discriminator.zero_grad()
        fake = generator(noise).detach()
        between = (real + fake).div(2).requires_grad_()
        slopes = torch.autograd.grad(discriminator(between).sum(), between, create_graph=True)[0]
        loss = discriminator(fake).mean() - discriminator(real).mean() + (slopes.norm(dim=1) - 1).square().mean()
        loss.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        (-discriminator(generator(noise)).mean()).backward()
        of_generator.step()


def frozen(batch):
    """The discriminator gets no gradients while the generator learns."""
    generator, discriminator, of_generator, of_discriminator = two_mlps()
    for _ in range(STEPS):
        real, noise = torch.randn(batch, 784, device="cuda"), torch.randn(batch, NOISE, device="cuda")
        fake = generator(noise)
        for parameter in discriminator.parameters():
            parameter.requires_grad = True
        of_discriminator.zero_grad()
        (discriminator(fake.detach()).mean() - discriminator(real).mean()).backward()
        of_discriminator.step()
        for parameter in discriminator.parameters():
            parameter.requires_grad = False
        of_generator.zero_grad()
        (-discriminator(fake).mean()).backward()
        of_generator.step()


def kept_gradients(batch):
    """Gradients are cleared by hand."""
    generator, discriminator, of_generator, of_discriminator = two_mlps()
    for _ in range(STEPS):
        real, noise = torch.randn(batch, 784, device="cuda"), torch.randn(batch, NOISE, device="cuda")
        fake = generator(noise)
        for parameter in discriminator.parameters():
            parameter.grad = None
        (discriminator(fake.detach()).mean() - discriminator(real).mean()).backward()
        of_discriminator.step()
        of_generator.zero_grad()
        (-discriminator(fake).mean()).backward()
        of_generator.step()


KINDS = {"penalty": penalty, "frozen": frozen, "kept_gradients": kept_gradients, "mlp": mlp, "dcgan": dcgan, "critic": critic, "ddp": ddp, "generator_first": generator_first}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    KINDS[arguments.kind](arguments.batch_size)


main()
