"""Measures how much of this machine others use meanwhile: a check that they disturb says nothing about a prediction."""

import os
import pathlib
import resource

# The share of the machine's time that others may use during a check.
OTHERS = 0.15
# The exit code of a check that was not made (as automake's).
NOT_CHECKED = 77


def _busy_s():
    """Seconds of all cores in which something ran, or the hypervisor ran another machine, and those in which nothing did."""
    user, nice, system, idle, wait, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
    tick = 1 / os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + soft + steal) * tick, (idle + wait) * tick


def _own_s():
    """CPU time of this process and of all that it has waited for."""
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in of)


class Watch:
    """Watches from its creation on."""

    def __init__(self):
        self.busy_s, self.idle_s = _busy_s()
        self.own_s = _own_s()

    def others(self):
        """The share of the machine's time that others used."""
        busy_s, idle_s = _busy_s()
        whole_s = busy_s - self.busy_s + idle_s - self.idle_s
        return max(busy_s - self.busy_s - (_own_s() - self.own_s), 0.0) / whole_s if whole_s > 0 else 0.0


def attempts(check, count):
    """Runs a check until it passes, `count` times at most. `check` gets the attempt's number and returns whether it passed. True if
    one passed, false if none did and others left at least one alone, none if each was disturbed."""
    quiet = False
    for attempt in range(1, count + 1):
        watch = Watch()
        if check(attempt):
            return True
        quiet = quiet or watch.others() <= OTHERS
    return False if quiet else None
