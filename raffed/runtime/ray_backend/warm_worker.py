"""What Ray starts in place of a worker, as a program: it asks warm_process.py for a fork.

It then becomes a shell that waits for the fork and ends with its exit code, because a shell takes 1 MB of
memory and Python 20. If there is no such process any more, or if it must not be forked for this worker, this
program becomes Ray's program itself.
"""

import json
import os
import signal
import socket
import sys

PLACE, PROGRAM = "RAFFED_WARM_PLACE", "RAFFED_WARM_PROGRAM"  # the process's socket, and Ray's program
# Ray sets it to 1 in a worker that has none, before torch and NumPy are imported. No actor has more cores
THREADS = "OMP_NUM_THREADS"
GREETING_SECONDS = 90.0  # in which the process must have imported torch; then the worker starts without it
SOCKET = "warm"  # the name of the process's socket in the folder of its Ray
SHELL = "/bin/sh"
WAIT = 'read -r code <&3; exit "${code:-1}"'


def request(words: "list[str]", begun: "list[str]") -> bytes:
    """Return what the fork takes over from this program, as JSON, so that it is like one that Ray starts.

    `words` are the program of the fork and its arguments. `begun` is how Python was begun, which
    `sys.orig_argv` has.
    """
    import resource  # not on Windows, where nothing is forked

    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as file:
            oom_score = file.read().strip()
    except OSError:
        oom_score = ""
    here, mask = os.path.dirname(__file__), os.umask(0)
    os.umask(mask)
    ignored = [one for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN]
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT" in name}
    taken_over = {
        "words": words,
        "begun": begun,
        "folder": os.getcwd(),
        "environment": {name: os.environ[name] for name in os.environ if name not in (PLACE, PROGRAM)},
        "path": [os.path.dirname(words[0]), *sys.path[1:]] if sys.path[0] == here else sys.path,
        "python": [sys.executable, repr(sys.flags)],
        "niceness": os.nice(0),
        "umask": mask,
        "blocked": [int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "ignored": [int(one) for one in ignored],
        "limits": limits,
        "oom_score": oom_score,
    }
    return json.dumps(taken_over).encode()


def ask_for_fork(place: str, words: "list[str]", begun: "list[str]") -> "socket.socket | None":
    """Return the socket on which the fork's exit code will come in digits, or None if there is no fork.

    Args:
        place: The socket of the process that is forked.
        words: See `request`.
        begun: See `request`.
    """
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(GREETING_SECONDS)
        line.connect(place)
        if line.recv(1):  # nothing is sent before, or a fork might begin after this program gave up
            line.settimeout(None)
            said = request(words, begun)
            socket.send_fds(line, [b"%8d" % len(said)], [0, 1, 2])
            line.sendall(said)
            if line.recv(1) == b"+":
                return line
    except OSError:
        pass
    line.close()
    return None


def wait_for(line: socket.socket) -> None:
    """Wait for the fork in a shell, and end with its exit code."""
    os.dup2(line.fileno(), 3)
    os.set_inheritable(3, True)  # which dup2 does not do if it was number 3 already
    try:
        os.execv(SHELL, ["sh: waits for a fork of raffed", "-c", WAIT])
    except OSError:  # there is no shell
        os._exit(int(line.recv(100) or b"1"))


if __name__ == "__main__":
    program = [os.environ[PROGRAM], *sys.argv[1:]]
    line = ask_for_fork(os.environ[PLACE], program, [sys.executable, *program])
    if line is not None:
        wait_for(line)
    del os.environ[PLACE], os.environ[PROGRAM]
    os.execv(sys.executable, [sys.executable, *program])
