"""The names in ``architectures`` that our own code computes, and the family of each."""

from __future__ import annotations

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "SmolLM3ForCausalLM": "smollm3",
    "Phi3ForCausalLM": "phi3",
    "GraniteForCausalLM": "granite",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo3",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma4ForCausalLM": "gemma4_text",
    "Gemma4UnifiedForCausalLM": "gemma4_unified_text",
    "Llama4ForCausalLM": "llama4_text",
    "MinistralForCausalLM": "ministral",
    "Ministral3ForCausalLM": "ministral3",
    "MixtralForCausalLM": "mixtral",
    "OlmoeForCausalLM": "olmoe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "GPT2LMHeadModel": "gpt2",
}
# The same without an output head: they support embeddings, but not generation.
BARE_ARCHITECTURES = {
    "LlamaModel": "llama",
    "MistralModel": "mistral",
    "Qwen2Model": "qwen2",
    "Qwen3Model": "qwen3",
    "SmolLM3Model": "smollm3",
    "Phi3Model": "phi3",
    "GraniteModel": "granite",
    "Olmo2Model": "olmo2",
    "Olmo3Model": "olmo3",
    "Gemma3TextModel": "gemma3_text",
    "Gemma4TextModel": "gemma4_text",
    "Gemma4UnifiedTextModel": "gemma4_unified_text",
    "Llama4TextModel": "llama4_text",
    "MinistralModel": "ministral",
    "Ministral3Model": "ministral3",
    "MixtralModel": "mixtral",
    "OlmoeModel": "olmoe",
    "Qwen3MoeModel": "qwen3_moe",
    "GPT2Model": "gpt2",
}
ENCODERS = {
    "BertModel": "bert",
    "BertForSequenceClassification": "bert",
    "RobertaModel": "roberta",
    "RobertaForSequenceClassification": "roberta",
    "XLMRobertaModel": "roberta",
    "XLMRobertaForSequenceClassification": "roberta",
}
# As a refusal lists them.
SUPPORTED = f"decoders ({', '.join(ARCHITECTURES)}) and encoders ({', '.join(ENCODERS)})"
