"""Learn the ranks of LoRA adapters, and load them with plain PEFT."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import diffprune as dp
from diffprune.integrations.peft import write_ranks_

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=32,
    pad_token_id=0,
    use_cache=False,
)
base = LlamaForCausalLM(config)
base.save_pretrained("base")
ids = torch.arange(16).view(2, 8)

model = get_peft_model(base, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
pruner = dp.Pruner(  # new
    model, {"input_ids": ids}, strength={"*lora_A*": 1.0}, remove_every=2
)
optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2, gate_lr=0.05))
for _ in range(8):
    loss = model(input_ids=ids, labels=ids).loss + pruner.penalty()  # new
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pruner.step(optimizer)  # new

small = pruner.finalize()
print("ranks:", write_ranks_(small))  # new
small.save_pretrained("adapter")
again = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained("base"), "adapter")
print("equal:", torch.allclose(again(ids).logits, small.eval()(ids).logits, atol=1e-6))
