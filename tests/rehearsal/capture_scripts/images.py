"""Trains models of timm and diffusers, small and random, in a plain loop. images.py NAME"""

import sys

import torch
import torch.nn.functional as F

NAME = sys.argv[1]
BATCH = 4


def classifier(model):
    model.to("cuda", torch.bfloat16)

    def loss():
        images = torch.randn(BATCH, 3, 64, 64, device="cuda", dtype=torch.bfloat16)
        return F.cross_entropy(model(images), torch.randint(10, (BATCH,), device="cuda"))
    return model, loss


def vit():
    import timm

    return classifier(timm.create_model("vit_small_patch16_224", img_size=64, patch_size=8, embed_dim=256, depth=4, num_heads=4,
                                        num_classes=10))


def convnext():
    import timm

    return classifier(timm.create_model("convnext_atto", num_classes=10, depths=(2, 2, 4, 2), dims=(32, 64, 128, 256)))


def resnet():
    import timm

    return classifier(timm.create_model("resnet26", num_classes=10))


def denoiser(model, shape, **words):
    """Trained in fp32 on noise that is added to latent images."""
    model.cuda()

    def loss():
        latents = torch.randn(BATCH, *shape, device="cuda")
        noise = torch.randn_like(latents)
        times = torch.randint(1000, (BATCH,), device="cuda")
        given = {name: torch.randn(BATCH, *size, device="cuda") for name, size in words.items()}
        return F.mse_loss(model(latents + noise, timestep=times, **given).sample, noise)
    return model, loss


def dit():
    from diffusers import DiTTransformer2DModel

    model, _ = denoiser(DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=64, in_channels=4, out_channels=4, num_layers=4,
                                              sample_size=16, patch_size=2, num_embeds_ada_norm=1000), (4, 16, 16))

    def loss():
        latents = torch.randn(BATCH, 4, 16, 16, device="cuda")
        noise = torch.randn_like(latents)
        times, labels = (torch.randint(1000, (BATCH,), device="cuda") for _ in range(2))
        return F.mse_loss(model(latents + noise, timestep=times, class_labels=labels).sample, noise)
    return model, loss


def sd3():
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=4, attention_head_dim=64, num_attention_heads=4,
                                  joint_attention_dim=128, caption_projection_dim=256, pooled_projection_dim=64, out_channels=4,
                                  pos_embed_max_size=16)
    return denoiser(model, (4, 16, 16), encoder_hidden_states=(32, 128), pooled_projections=(64,))


def unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=16, block_out_channels=(32, 64, 128), layers_per_block=2, cross_attention_dim=64,
                                 down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
                                 up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
                                 attention_head_dim=8, norm_num_groups=8)
    return denoiser(model, (4, 16, 16), encoder_hidden_states=(32, 64))


MAKERS = (vit, convnext, resnet, dit, sd3, unet)
model, loss_of = {maker.__name__: maker for maker in MAKERS}[NAME]()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(10):
    loss_of().backward()
    optimizer.step()
    optimizer.zero_grad()
