# Shared by the scripts: the root of the checkout, messages, and the number of parallel compilations.
# shellcheck shell=bash disable=SC2034
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
step="start"
hint="see the output above"

say() { printf '%s: %s\n' "${0##*/}" "$*"; }

# Prints the step that failed and a hint; `begin` sets both.
failed() {
  local rc=$?
  trap - ERR
  printf '\n%s: failed (exit status %d) in the step: %s\n%s: hint: %s\n' "${0##*/}" "$rc" "$step" "${0##*/}" "$hint" >&2
  exit "$rc"
}
begin() { step=$1 hint=$2; }
give_up() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit "${2:-1}"
}

# The comment at the top of a script is its help.
usage() { awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; }

# Prints the number of parallel compilations that the memory and the cores allow, including the limits of the cgroup. A source that includes
# libtorch takes up to 2.5 GiB.
jobs() {
  local cores kib limit used max period
  cores=$(nproc)
  kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max && -r /sys/fs/cgroup/memory.current ]]; then
    limit=$(< /sys/fs/cgroup/memory.max) used=$(< /sys/fs/cgroup/memory.current)
    if [[ $limit != max ]] && (((limit - used) / 1024 < kib)); then kib=$(((limit - used) / 1024)); fi
  fi
  if [[ -r /sys/fs/cgroup/cpu.max ]]; then
    read -r max period < /sys/fs/cgroup/cpu.max
    if [[ $max != max ]] && (((max + period - 1) / period < cores)); then cores=$(((max + period - 1) / period)); fi
  fi
  local fit=$((kib / 2621440))
  ((fit < cores)) || fit=$cores
  echo $((fit > 1 ? fit : 1))
}

# With these settings ccache supports precompiled headers.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
