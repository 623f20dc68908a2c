"""The command line: a question, a pipe or a chat; options for model, tools and what is shown (chapter 06).

    python -m hello_react "How much taller is Mount Everest than K2?"

Everything is imported when it is needed, so that `--help` is instant. A run goes to standard output, what is
said around it (which model, why there is no answer, errors) to standard error. Exit codes stand in `--help`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .agent import ReActAgent
    from .events import Event, Result
    from .parser import Action
    from .settings import Settings
    from .tools import ToolExecutor

OK, NO_ANSWER, USAGE, MODEL_FAILED, NEVER_IN_FORMAT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 4, 130, 141

EPILOG = """\
Without a question: text from a pipe is the question; on a terminal a chat opens. With one, a '-' behind
it adds the text from a pipe.

A model: set LLM_MODEL_ID, LLM_API_KEY and LLM_BASE_URL (environment or .env) for any OpenAI-compatible
service; with none of them set, the embedded model answers (pip install 'hello-react[local]').

Exit codes: 0 answered, if only that the answer could not be found; 1 ended without an answer (step limit,
time, repeats); 2 usage or settings; 3 the model or its service failed; 4 the model never kept to the
format; 130 interrupted.

Examples:
  hello-react "What is (2123 + 2321) * 312?"
  hello-react --local --show-prompt "How much taller is Mount Everest than K2?"
  hello-react --tool mytools.py:send_email --approve "Tell Ada that the report is ready."
  hello-react --try-tool "Search[Oslo]"
  cat question.txt | hello-react --json
  cat mail.txt | hello-react "What does this mail ask for?" -
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: -"):
            import difflib

            typed = message.split()[2].partition("=")[0]
            near = difflib.get_close_matches(typed, self._option_string_actions, 1, cutoff=0.7)
            message += f"; did you mean {near[0]}?" if near else ""
        self.exit(USAGE, f"{self.prog}: {message} (see --help)\n")


def _whole(least: int) -> Callable[[str], int]:
    def check(text: str) -> int:
        if not text.removeprefix("+").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text!r}")
        return int(text)

    return check


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of 0 or more, not {text!r}")
    return value


def build_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = _Parser(
        prog="hello-react", description="Ask a ReAct agent: it thinks, uses tools, and shows each step.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    add = parser.add_argument
    add("question", nargs="*", help="what to ask; a '-' at the end reads standard input, too")
    add("--version", action="store_true", help="show the version and stop")
    add("--settings", action="store_true", help="show every setting and where it comes from, and stop")

    add = parser.add_argument_group("the model").add_argument
    add("--model", metavar="NAME", help="name of the model (LLM_MODEL_ID)")
    add("--base-url", metavar="URL", help="address of an OpenAI-compatible service (LLM_BASE_URL)")
    add("--local", action="store_true", help="use the embedded model, whatever is set")
    add("--temperature", type=_seconds, metavar="T", help="0 (the default) for the most likely reply")
    add("--max-tokens", type=_whole(1), metavar="N", help="tokens of one reply at most")

    add = parser.add_argument_group("the agent").add_argument
    add("--agent", choices=("text", "tools"), default="text",
        help="'text' (the default) reads Thought and Action from text, 'tools' uses native tool calls (not "
             "for the embedded model)")
    add("--max-steps", type=_whole(1), default=5, metavar="N", help="model calls at most (default 5)")
    add("--time-limit", type=_seconds, metavar="SECONDS", help="time for the whole run")
    add("--best-effort", action="store_true", help="at the step limit, ask for the best answer so far")
    add("--approve", action="store_true", help="ask on the terminal before each tool call")
    add("--lang", choices=("auto", "en", "zh"), default="auto",
        help="language of the prompt (default: the question's)")
    add("--few-shot", metavar="FILE", help="worked examples for the prompt, separated by lines of ---")

    add = parser.add_argument_group("the tools").add_argument
    add("--search", choices=("serpapi", "wikipedia", "offline"),
        help="where Search looks (default: SerpApi with a key; else Wikipedia, or offline with the embedded "
             "model)")
    add("--tools", metavar="LIST",
        help="which ready-made tools, such as Search,Lookup,Calculator,Weather,Clock (default: the first "
             "three); 'none' for none")
    add("--tool", action="append", default=[], metavar="PLACE:NAME",
        help="add a tool of your own from a module or a file, such as tools.py:send: a function with a "
             "docstring, a Tool or a ToolExecutor (repeatable)")
    add("--try-tool", metavar="CALL",
        help="run one call, such as 'Search[Oslo]', show its observation, and stop")

    add = parser.add_argument_group("what is shown").add_argument
    add("--show-prompt", action="store_true", help="show what is sent to the model")
    add("--show-raw", action="store_true", help="show each reply as it came")
    add("--quiet", action="store_true", help="only the answer")
    add("--json", action="store_true", help="the whole result as JSON")
    add("--no-color", action="store_true", help="no colours (NO_COLOR is respected too)")
    add("--trace", metavar="FILE",
        help="record every event as a JSON line; adds to a trace that is there, a folder gets a new file")
    add("--replay", metavar="FILE",
        help="show a recorded run again, without model and tools; of a folder, its newest trace")
    add("--log-level", choices=("debug", "info", "warning", "error"),
        help="write log records to standard error")
    add("--log-json", action="store_true", help="log records as JSON lines")
    add("--otel", metavar="URL",
        help="send OpenTelemetry spans there, such as http://127.0.0.1:6006 (Phoenix)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  lives as long as the process
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        options = build_parser().parse_args(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    from .errors import HelloReactError, ModelError

    try:
        code = _run(options)
        sys.stdout.flush()
        return code
    except OSError as error:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # Python flushes standard output at its exit and must not fail on the same file again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        _say(f"Writing failed: {error.strerror or error}.")
        return USAGE
    except KeyboardInterrupt:
        _say("Interrupted.")
        return INTERRUPTED
    except ModelError as error:
        _say(str(error))
        return MODEL_FAILED
    except (HelloReactError, ValueError) as error:
        if isinstance(error, UnicodeError):
            raise
        _say(str(error))
        return USAGE


def _say(text: str) -> None:
    from .console import write_line
    from .text import printable

    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            write_line(sys.stderr, f"hello-react: {printable(text)}")


def _out(text: str) -> None:
    from .console import write
    from .text import printable

    write(sys.stdout, printable(text) + "\n")


def _run(options: argparse.Namespace) -> int:
    if options.version:
        from . import __version__

        _out(f"hello-react {__version__}")
        return OK
    if options.log_level or options.log_json:
        from .logs import configure

        configure(options.log_level or "info", json=options.log_json)
    if options.replay:
        if options.question or options.trace:
            raise ValueError("--replay shows a recorded run: leave out the question and --trace")
        return _replay(options)
    from .settings import Settings

    settings = Settings.load()
    if options.settings:
        _out(f"{settings.describe()}\n{_model_in_use(options, settings)}")
        return OK
    if options.try_tool is not None:
        return _try_tool(options, settings)
    question = _question(options)
    with _tools_print_to_stderr() if options.quiet or options.json else contextlib.nullcontext():
        agent = _agent(options, settings, said=not options.quiet)
    with contextlib.ExitStack() as stack:
        if question is None:
            from .chat import chat

            listeners = _listeners(options, agent, stack)

            def tell_all(event: Event) -> None:
                for listener in listeners:
                    listener(event)

            return chat(agent, printer=tell_all, out=sys.stdout, err=sys.stderr, trace=options.trace)
        return _answer(agent, question, options, stack)


def _question(options: argparse.Namespace) -> str | None:
    """The question, or None for a chat.

    Raises:
        ValueError: there is none, and no terminal to ask it on.
    """
    from .text import sendable

    reads = not options.question or options.question[-1] == "-"
    question = " ".join(options.question[:-1] if reads else options.question)
    if os.name != "nt" and not question.isprintable():  # bytes that the locale could not read, such as in C
        question = os.fsencode(question).decode("utf-8", "replace")
    question = sendable(question)
    if question.strip() and not reads:
        return question
    if not options.question and sys.stdin is not None and sys.stdin.isatty():
        if options.quiet or options.json:
            raise ValueError("--quiet and --json need a question; a chat has neither")
        return None
    if sys.stdin is not None and reads:
        raw = getattr(sys.stdin, "buffer", None)
        piped = sendable(raw.read().decode("utf-8", "replace") if raw else sys.stdin.read()).strip()
        question = f"{question}\n\n{piped}".strip()
    if not question.strip():
        values = {f"--{name.replace('_', '-')}": value for name, value in vars(options).items()}
        took = "".join(f"; {name} took {value!r}" for name, value in values.items()
                       if isinstance(value, str) and " " in value.strip())
        raise ValueError(f'no question given{took}: hello-react "What is 6 * 7?" (see --help)')
    return question


# --- the agent


def _agent(options: argparse.Namespace, settings: Settings, said: bool) -> ReActAgent:
    """The agent that the options describe; announces a model or a search that stands in for a better one."""
    from .prompt import Lang, Prompt

    local = _uses_local(options, settings)
    if local and options.agent == "tools" and not settings.local_model_path:
        raise ValueError("the embedded model was trained for the text format only: leave out --agent tools")
    examples: tuple[str, ...] = ()
    if options.few_shot:
        if options.agent == "tools":
            raise ValueError("--few-shot is for the text agent; leave out --agent tools")
        examples = _read_examples(options.few_shot)
    if options.approve and (sys.stdin is None or not sys.stdin.isatty()):
        raise ValueError("--approve asks on the terminal, but standard input is none")
    tools, about_search = _tools(options, settings, local=local)
    say = _say if said else (lambda text: None)
    client = _client(options, local, say)
    if about_search:
        say(about_search)
    if local and options.lang == "zh":
        say("The embedded model knows English only: --lang zh changes nothing.")
    limits: dict[str, Any] = {
        "max_steps": options.max_steps, "time_limit": options.time_limit, "best_effort": options.best_effort,
        "approve": _ask_approval if options.approve else None,
    }
    lang: Lang = "en" if local else options.lang  # the embedded model knows English only
    if options.agent == "tools":
        from .tool_calling import ToolCallingAgent

        return ToolCallingAgent(client, tools, prompt=Prompt(lang=lang), **limits)
    from .agent import ReActAgent

    own = local and not examples  # the embedded model brings a prompt of its own
    return ReActAgent(client, tools, prompt=None if own else Prompt(lang=lang, examples=examples), **limits)


def _uses_local(options: argparse.Namespace, settings: Settings) -> bool:
    nothing_given = settings.llm_is_set == "none" and not options.model and not options.base_url
    return bool(options.local or nothing_given)


def _model_in_use(options: argparse.Namespace, settings: Settings) -> str:
    if _uses_local(options, settings):
        from .local import available

        name = settings.local_model_path or "the embedded SmolLM2-135M-Instruct"
        return f"Model in use: {name}" if available() else "Model in use: none (see --help)"
    from .settings import without_secrets

    model = options.model or settings.model or "(LLM_MODEL_ID is missing)"
    address = without_secrets(options.base_url or settings.base_url or "") or "(LLM_BASE_URL is missing)"
    return f"Model in use: {model} at {address}"


def _client(options: argparse.Namespace, local: bool, say: Callable[[str], None]) -> Any:
    from .errors import SettingsError
    from .llm import HelloAgentsLLM, default_llm

    chosen = {"temperature": options.temperature, "max_tokens": options.max_tokens}
    given = {name: value for name, value in chosen.items() if value is not None}
    if options.local:
        from .local import embedded_llm

        return embedded_llm(say=say, **given)
    if local:
        return default_llm(say=say, **given)
    try:
        return HelloAgentsLLM(options.model, base_url=options.base_url, **given)
    except SettingsError as error:
        raise SettingsError(f"{error} Or ask the embedded model, with --local.") from None


def _read_examples(path: str) -> tuple[str, ...]:
    from .repairs import LABEL, label_kind

    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"--few-shot: {path} is no file")
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"--few-shot: {path} can't be read: {reason}") from None
    parts = text.replace("\r\n", "\n").split("\n---\n")
    examples = tuple(part.strip() for part in parts if part.strip(" \n-"))
    asked = [any(label_kind(label) == "question" for label in LABEL.finditer(part)) for part in examples]
    if not examples or not all(asked):
        raise ValueError(f"--few-shot: {path} holds no example, or a part that is none: each has a line "
                         "'Question: ...', then the steps, as --show-prompt shows them")
    return examples


READY_MADE = ("Search", "Lookup", "Calculator", "Weather", "Clock")


def _tools(options: argparse.Namespace, settings: Settings, local: bool) -> tuple[ToolExecutor, str]:
    """The tools that the options ask for, and a line on the search in use ("" if none is needed)."""
    from .tools import Tool, ToolExecutor

    wanted = list(READY_MADE[:3])
    if options.tools:
        names = {name.casefold(): name for name in READY_MADE}
        asked = [name.strip() for name in options.tools.split(",") if name.strip()]
        unknown = [name for name in asked if name.casefold() not in names and name != "none"]
        if unknown:
            raise ValueError(f"--tools: there is no {unknown[0]!r}; choose from {', '.join(READY_MADE)}, "
                             "or 'none'")
        wanted = [names[name.casefold()] for name in asked if name != "none"]
    tools = ToolExecutor()
    about = ""
    if {"Search", "Lookup"} & set(wanted):
        search, lookup, about = _search(options, settings, local)
        if "Search" in wanted:
            tools.add(Tool.from_function(search, "Search"))
        if "Lookup" in wanted and lookup is not None:
            tools.add(Tool.from_function(lookup, "Lookup"))
    if "Calculator" in wanted:
        from .toolbox.calculator import calculate

        tools.add(Tool.from_function(calculate, "Calculator"))
    if "Weather" in wanted:
        from .toolbox.weather import get_weather

        tools.add(Tool.from_function(get_weather, "Weather"))
    if "Clock" in wanted:
        from .toolbox.clock import now

        tools.add(Tool.from_function(now, "Clock"))
    import warnings

    for place in options.tool:
        for tool in _load_tools(place):
            if tool.name in tools.names:
                _say(f"The tool {tool.name} of {place} replaces the one of that name.")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                tools.add(tool)
    return tools, about


def _search(options: argparse.Namespace, settings: Settings, local: bool) -> tuple[Any, Any, str]:
    """The functions behind Search and Lookup, and what to say about them."""
    choice = options.search
    if choice is None:
        choice = "serpapi" if settings.serpapi_api_key else "offline" if local else "wikipedia"
    if choice == "serpapi":
        if not settings.serpapi_api_key:
            raise ValueError("--search serpapi needs SERPAPI_API_KEY, in the environment or in .env")
        from .toolbox.search import search

        return search, None, "Search: Google, through SerpApi."
    hint = "" if options.search else " Set SERPAPI_API_KEY to search the web."
    if choice == "wikipedia":
        from .toolbox.wikipedia import Wikipedia

        wikipedia = Wikipedia()
        return wikipedia.search, wikipedia.lookup, f"Search: Wikipedia.{hint}"
    from .toolbox.encyclopedia import Encyclopedia

    encyclopedia = Encyclopedia()
    about = f"Search: a small encyclopedia that ships with the package.{hint}"
    return encyclopedia.search, encyclopedia.lookup, about


def _load_tools(place: str) -> list[Any]:
    """The tools that MODULE:NAME or FILE.py:NAME stands for.

    Raises:
        ValueError: nothing usable is there; the text says what was missing.
    """
    import importlib
    import importlib.util

    from .tools import Tool, ToolExecutor

    module_name, colon, name = place.rpartition(":")
    if not colon or not module_name or not name:
        raise ValueError(f"--tool {place}: write MODULE:NAME or FILE.py:NAME")
    is_file = module_name.endswith(".py")
    if is_file and not os.path.isfile(module_name):
        raise ValueError(f"--tool {place}: there is no file {module_name}")
    try:
        if is_file:
            folder, file = os.path.split(os.path.abspath(module_name))
            spec = importlib.util.spec_from_file_location(f"tools_of_{file[:-3]}", module_name)
            assert spec is not None
            assert spec.loader is not None
            sys.path.append(folder)  # it may import its neighbours
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look themselves up there
            spec.loader.exec_module(module)
        else:
            if os.getcwd() not in sys.path:
                sys.path.insert(0, os.getcwd())
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the user's own module may fail in any way
        why = f"{type(error).__name__}: {error}".rstrip(": ") + _own_line(error)
        raise ValueError(f"--tool {place}: {module_name} can't be imported: {why}") from None
    found = getattr(module, name, None)
    if isinstance(found, ToolExecutor):
        return list(found)
    if isinstance(found, Tool):
        return [found]
    if not callable(found):
        import difflib

        if hasattr(module, name):
            raise ValueError(f"--tool {place}: {name} is no function, Tool or ToolExecutor")
        near = difflib.get_close_matches(name, [known for known in vars(module) if known[0] != "_"], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"--tool {place}: {name} is not in that module{hint}")
    return [Tool.from_function(found)]


def _own_line(error: BaseException) -> str:
    """The last line of the user's own code that `error` came through, as " (FILE, line N)"; "" if none."""
    import sysconfig
    import traceback

    folders = [os.path.dirname(__file__), *map(sysconfig.get_path, ("stdlib", "platlib", "purelib"))]
    foreign = ("<", *(os.path.join(folder, "") for folder in folders))
    own = [frame for frame in traceback.extract_tb(error.__traceback__)
           if not frame.filename.startswith(foreign)]
    return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""


def _ask_approval(action: Action) -> bool | str:
    from .console import write
    from .text import printable

    call = printable(f"{action.tool}[{action.input}]")
    write(sys.stderr, f"Run {call}? (y for yes, Enter for no, or say why not) ")
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        write(sys.stderr, "\n")
    answer = line.strip()
    if answer.casefold() in ("y", "yes", "是", "好"):
        return True
    return answer if answer.casefold() not in ("", "n", "no", "否", "不") else False


# --- what is done


def _printer(options: argparse.Namespace, seconds: dict[int, float] | None = None) -> Callable[[Event], None]:
    from .console import Printer

    return Printer(sys.stdout, colour=False if options.no_color else None, show_prompt=options.show_prompt,
                   show_raw=options.show_raw, reasons=sys.stderr, seconds=seconds)


def _listeners(options: argparse.Namespace, agent: ReActAgent,
               stack: contextlib.ExitStack) -> list[Callable[[Event], None]]:
    """Who listens to the events: the terminal, the log, OpenTelemetry."""
    listeners: list[Callable[[Event], None]] = []
    if options.log_level or options.log_json:
        from .logs import LogListener

        listeners.append(LogListener())
    if options.otel:
        from .tracing import OtelListener, otlp_provider

        provider = otlp_provider(options.otel)
        stack.callback(provider.shutdown)
        listeners.append(OtelListener(provider, llm=agent.llm))
    if not (options.quiet or options.json):
        listeners.append(_printer(options))
    return listeners


def _answer(agent: ReActAgent, question: str, options: argparse.Namespace,
            stack: contextlib.ExitStack) -> int:
    from .errors import ModelError
    from .events import drain

    silent = options.quiet or options.json
    listeners = _listeners(options, agent, stack)
    if options.trace:
        from .trace import TraceWriter

        trace = stack.enter_context(TraceWriter(options.trace))
        listeners.insert(0, trace)
        if not options.quiet:
            stack.callback(lambda: None if trace.error else _say(f"Recorded in {trace.path}."))
    try:
        with _tools_print_to_stderr() if silent else contextlib.nullcontext():
            result = drain(agent.stream(question), *listeners)
    except (ModelError, KeyboardInterrupt) as error:
        failed = getattr(error, "result", None)
        if not options.json or failed is None:
            raise
        result = failed
    return _show(result, options)


def _show(result: Result, options: argparse.Namespace) -> int:
    """What is left to say at the end of a run, and its exit code."""
    if options.json:
        from .console import write

        write(sys.stdout, _json_text(_as_json(result)) + "\n")
    elif options.quiet and result.answer is not None:
        _out(result.answer)
    if (options.quiet or options.json) and result.status != "finished":
        _say(result.reason)
    return exit_code(result)


def _json_text(value: Any) -> str:
    """`value` as JSON, with every sign that a terminal obeys written as an escape."""
    import json

    controls = "[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return re.sub(controls, lambda match: f"\\u{ord(match[0]):04x}", text)


def exit_code(result: Result) -> int:
    """The exit code for how a run ended."""
    codes = {"finished": OK, "best_effort": OK, "malformed": NEVER_IN_FORMAT, "failed": MODEL_FAILED,
             "interrupted": INTERRUPTED}
    return codes.get(result.status, NO_ANSWER)


def _as_json(result: Result) -> dict[str, Any]:
    from .text import sendable

    def usage(part: Any) -> dict[str, Any]:
        return {"prompt_tokens": part.usage.prompt_tokens, "completion_tokens": part.usage.completion_tokens}

    steps = [
        {
            "number": step.number, "thought": step.thought,
            "calls": [{"tool": call.tool, "input": sendable(call.input)} for call in step.calls],
            "observations": [
                {"text": seen.text, "ok": seen.ok, "error": seen.error, "seconds": round(seen.seconds, 3)}
                for seen in step.observations
            ],
            "usage": usage(step), "seconds": round(step.seconds, 3),
        }
        for step in result.steps
    ]
    return {
        "question": result.question, "answer": result.answer, "status": result.status,
        "reason": result.reason, "steps": steps, "usage": usage(result),
        "seconds": round(result.seconds, 3), "last_text": sendable(result.last_text),
    }


@contextlib.contextmanager
def _tools_print_to_stderr() -> Iterator[None]:
    """What a tool prints, or a program that it starts, must not get between the lines of the answer."""
    try:
        sys.stdout.flush()
        saved = os.dup(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # standard output is not a file, as in a notebook
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    try:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, sys.stdout.fileno())
        os.close(saved)


def _try_tool(options: argparse.Namespace, settings: Settings) -> int:
    from .parser import Action, Malformed, parse
    from .tools import OTHER_WAYS

    with _tools_print_to_stderr():
        tools, about = _tools(options, settings, local=_uses_local(options, settings))
    move = parse(f"Action: {options.try_tool}", tools.names).move
    if not isinstance(move, Action):
        why = "write a call such as 'Search[Oslo]'."
        if isinstance(move, Malformed) and move.reason == "unclosed":
            why = f"a bracket is not closed; {why}"
        if isinstance(move, Malformed) and move.reason == "unknown_tool":
            why = tools.execute(options.try_tool.partition("[")[0].strip(), "").text.partition(" Tools:")[0]
        raise ValueError(f"--try-tool: {why} Tools: {', '.join(tools.names)} (more with --tools and --tool)")
    if about and move.tool in ("Search", "Lookup"):
        _say(about)
    tool = next(tool for tool in tools if tool.name == move.tool)
    call, failures = tool.call, list[BaseException]()

    def noting(input: str | Mapping[str, Any], timeout: float | None) -> Any:
        try:
            return call(input, timeout)
        except BaseException as error:
            failures.append(error)
            raise

    tool.call = noting  # type: ignore[method-assign]
    with _tools_print_to_stderr():
        observation = tools.execute(move.tool, move.input)
    # What to do instead is advice for a model; a person wants to know where it happened.
    _out(observation.text if observation.ok
         else observation.text.removesuffix(f". {OTHER_WAYS}") + _own_line(failures[-1]))
    return OK if observation.ok else NO_ANSWER


def _replay(options: argparse.Namespace) -> int:
    from .events import RunEnded, RunStarted, drain
    from .trace import read, replay

    path = _newest_trace(options.replay) if os.path.isdir(options.replay) else options.replay
    events = replay(path)
    silent = options.quiet or options.json
    runs = read(path).runs
    listeners = []
    if not silent:
        named = f" ({path})" if path != options.replay else ""
        _say(f"The last of {len(runs)} recorded runs{named}." if len(runs) > 1 else f"A recorded run{named}.")
        first, last = runs[-1][0], runs[-1][-1]
        assert isinstance(first, RunStarted)
        _say(f"The question was: {first.question}")
        steps = last.result.steps if isinstance(last, RunEnded) else ()
        listeners.append(_printer(options, {step.number: step.seconds for step in steps}))
    result = drain(events, *listeners)
    if not silent and result.status in ("failed", "interrupted"):
        _say(result.reason)
    return _show(result, options)


def _newest_trace(folder: str) -> str:
    files = [entry.path for entry in os.scandir(folder) if entry.name.endswith(".jsonl") and entry.is_file()]
    if not files:
        raise ValueError(f"--replay: the folder {folder} holds no trace (a file NAME.jsonl)")
    return max(files, key=lambda path: (os.path.getmtime(path), path))
