#!/usr/bin/env bash
# Proves the two commands on a bare machine. Makes a fresh Debian root with
# debootstrap, puts git, make and certificates into it and nothing else, clones
# this repository's HEAD into it, and runs there, by chroot, `make demo` twice
# and `make test`; or the commands given instead. Then it prints what each
# took, and how much of that was apt.
#
#   sudo tools/check_bare_root.sh [--keep] [COMMAND]...
#   sudo tools/check_bare_root.sh "make test" .ci/run
#
# The root is of this machine's own Debian release and takes its packages from
# where this machine takes them, by the same proxy and certificates. It lies in
# $TMPDIR and is removed at the end; --keep leaves it there. Needs root and
# debootstrap.
set -euo pipefail

# In a mount namespace of its own, so that no mount outlives this process,
# however it ends.
if [[ "${ESPALIER_BARE_ROOT_UNSHARED:-}" != 1 ]]; then
  [[ $EUID == 0 ]] || { echo "check_bare_root.sh needs root" >&2; exit 1; }
  command -v debootstrap >/dev/null ||
    { echo "check_bare_root.sh needs debootstrap" >&2; exit 1; }
  ESPALIER_BARE_ROOT_UNSHARED=1 exec unshare --mount --propagation private \
    -- "$0" "$@"
fi

keep=0
commands=()
for argument in "$@"; do
  if [[ "$argument" == --keep ]]; then keep=1; else commands+=("$argument"); fi
done
[[ ${#commands[@]} -gt 0 ]] || commands=("make demo" "make demo" "make test")

project=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
readonly keep commands project codename
root=$(mktemp -d -t espalier-root.XXXXXX)
readonly root
chmod 755 "$root"  # apt downloads as a user of its own

clean_up() {
  umount --recursive "$root/proc" 2>/dev/null || true
  if [[ $keep == 1 ]]; then
    echo "The root is kept in $root"
  else
    rm -rf --one-file-system "$root"
  fi
}
trap clean_up EXIT

# The distribution's own sources of this machine, as sources.list lines; what
# third parties added is not needed.
sources() {
  # shellcheck disable=SC2016  # apt's variables, not the shell's
  apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' \
    "Created-By: Packages" |
    awk -v name="$codename" '$3 == name || index($3, name "-") == 1' | sort -u
}

# How this machine's apt reaches them: proxies and their certificates.
copy_network_settings() {
  apt-config dump | grep -E '^(Acquire::https?|Acquire::Check-)' \
    >"$root/etc/apt/apt.conf.d/99network" || true
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  if [[ -d /usr/local/share/ca-certificates ]]; then
    cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
  fi
}

# Runs a command line in the root, in the clone once it is there.
inside() {
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root LANG=C.UTF-8 ${http_proxy:+http_proxy="$http_proxy"} \
    ${https_proxy:+https_proxy="$https_proxy"} \
    chroot "$root" bash -c "cd /opt/espalier 2>/dev/null; $1" </dev/null
}

make_root() {
  local mirror
  mirror=$(sources | awk -v name="$codename" '$3 == name {print $2; exit}')
  debootstrap --variant=minbase "$codename" "$root" "$mirror"
  sources >"$root/etc/apt/sources.list"
  copy_network_settings
  mount -t proc proc "$root/proc"
  inside "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y \
    --no-install-recommends install git make ca-certificates"
  git clone --quiet --depth 1 "file://$project" "$root/opt/espalier"
}

# Runs the command with number $1, its output to the terminal and a log, and
# adds a line to the summary.
summary=""
run_timed() {
  local number=$1 command=${commands[$1]} log="$root/opt/$1.log"
  local start=$EPOCHREALTIME seconds apt
  printf '\n=== %s\n' "$command"
  inside "$command" 2>&1 | tee "$log"
  seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" \
    'BEGIN {printf "%.1f", b - a}')
  apt=$(sed -n 's/^Installed in \([0-9]*\) s\.$/\1/p' "$log" |
    awk '{sum += $1} END {print sum + 0}')
  summary+=$(printf '%-2s %-24s %8s s, of which apt %4s s' "$((number + 1))" \
    "$command" "$seconds" "$apt")$'\n'
}

if [[ -n "$(git -C "$project" status --porcelain)" ]]; then
  echo "HEAD is what is checked; changes not committed are left out."
fi
echo "=== A bare root of $codename in $root"
make_root >"$root.log" 2>&1 || { tail -40 "$root.log" >&2; exit 1; }
rm -f "$root.log"
for number in "${!commands[@]}"; do run_timed "$number"; done
printf '\n=== %s, HEAD %s, %s cores\n%s' "$codename" \
  "$(git -C "$project" rev-parse --short HEAD)" "$(nproc)" "$summary"
