"""The embedded model from a shell: `python -m hello_react.local fetch`, `serve` or `info`.

Exit codes: 0 done (also when Ctrl-C ends `serve`); 2 wrong usage, or a setting to change; 3 the model can't
be had or does not run; 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Sequence

from ..console import write_line
from ..errors import HelloReactError, MissingExtraError, ModelError, SettingsError
from ..settings import Settings
from .fetch import SIZE, fetch_weights, is_whole, weights_path
from .prompt import ADAPTER
from .serve import CONTEXT, NOTE, LocalServer, available


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "fetch":
            print(fetch_weights(_say, thorough=True))
        elif options.command == "info":
            _info()
        else:
            _serve(options)
    except HelloReactError as error:
        _say(f"Error: {error}")
        return 2 if isinstance(error, (SettingsError, MissingExtraError)) else 3
    except KeyboardInterrupt:
        _say("Interrupted.")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hello_react.local",
        description="The embedded model: a small language model that runs on this machine, without a key and "
        "without a network.",
        epilog="Settings: LOCAL_MODEL_PATH, another GGUF file to use instead; HELLO_REACT_CACHE, the folder "
        "that keeps the weights. Exit codes: 0 done (also when Ctrl-C ends serve); 2 wrong usage, or a "
        "setting to change; 3 the model can't be had or does not run; 130 interrupted by Ctrl-C.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "fetch", help="download the weights (98 MB, once), or check those that are there",
        description="Download the weights, or check those that are there, and print their path.")
    serve = commands.add_parser(
        "serve", help="run the model server until Ctrl-C, for any client of the OpenAI protocol",
        description="Run the model server until Ctrl-C, and print the settings that make it your model.")
    serve.add_argument("--port", type=_number(65535), default=0, metavar="N",
                       help="where to listen (default: a free port)")
    serve.add_argument("--model", metavar="FILE",
                       help="a GGUF file (default: LOCAL_MODEL_PATH, else the embedded model)")
    serve.add_argument("--context", type=_number(1_000_000), default=CONTEXT, metavar="TOKENS",
                       help="for a prompt and its reply together (default: %(default)s)")
    serve.add_argument("--threads", type=_number(512), metavar="N",
                       help="cores to use (default: chosen by the model)")
    commands.add_parser("info", help="what is installed, and where",
                        description="Print where the weights are, whether they are whole, what runs them.")
    return parser


def _serve(options: argparse.Namespace) -> None:
    with LocalServer(options.model, threads=options.threads, context=options.context, port=options.port,
                     say=_say) as server:
        try:
            print(f"LLM_MODEL_ID={server.model}\nLLM_API_KEY={server.api_key}\nLLM_BASE_URL={server.url}",
                  flush=True)
            _say("Only this machine can use it: put these lines into a project's .env. Ctrl-C stops it.")
            server.wait()
        except KeyboardInterrupt:
            _say("Stopped.")
            return
    raise ModelError("The model server ended by itself.")


def _info() -> None:
    path, other = weights_path(), Settings.load().local_model_path
    if not path.exists():
        state = "not there yet (fetched at first use, or with: python -m hello_react.local fetch)"
    elif is_whole(path, thorough=True):
        state = f"{SIZE:,} bytes, sha256 as expected"
    else:
        state = "damaged; the next fetch replaces it"
    rows = {
        "weights": path,
        "state": state,
        "adapter": ADAPTER if ADAPTER.exists() else "none: without one this model solves few ReAct questions",
        "llama.cpp": f"xllamacpp {importlib.metadata.version('xllamacpp')}" if available()
        else "not installed: pip install 'hello-react[local]'",
        "licence": "Apache-2.0 (the weights)",
    }
    if other:
        rows = {"used instead": f"{other} (LOCAL_MODEL_PATH)", **rows}
    for name, value in rows.items():
        print(f"{name:12}  {value}")
    write_line(sys.stdout, NOTE)


def _number(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) < 10 and int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 0 to {most:,}")
        return int(text)

    return number


def _say(text: str) -> None:
    write_line(sys.stderr, text)


if __name__ == "__main__":
    sys.exit(main())
