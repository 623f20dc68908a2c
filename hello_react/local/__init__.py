"""The embedded model: a small language model that runs on this machine, without a key and
without a network (chapter 10 teaches it).

`pip install 'hello-react[local]'` brings llama.cpp's server; the weights (98 MB) are fetched once, at first
use, and shared by all projects. Any other GGUF file takes their place when LOCAL_MODEL_PATH names it. From a
shell: `python -m hello_react.local fetch|serve|info`. Leaves out: GPUs (but for what llama.cpp does by
itself) and other servers; for those set LLM_BASE_URL.

    >>> weights_path().name
    'SmolLM2-135M-Instruct.Q4_1.gguf'
"""

from .fetch import cache_folder, fetch_weights, weights_path
from .serve import LocalServer, available, embedded_llm

__all__ = ["LocalServer", "available", "cache_folder", "embedded_llm", "fetch_weights", "weights_path"]
