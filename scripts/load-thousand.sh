#!/usr/bin/env bash
# Is a working server ever reported as dead? Runs `highwater load` a thousand times for half a second, at 1.2 to 4 times
# the capacity of a server whose requests take a millisecond, beside a process that takes the client's CPU; every fourth
# run at nice 19. Fails if a run reports a goodput of 0; a run whose client got no CPU reports that it measured nothing, by
# `null` and by its exit status. `make load-thousand`; RUNS=50 for less; BUSY=no if the machine is busy already.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${RUNS:-1000}
bin=${BIN:-target/fast}
out=${OUT:-bench/results/load-thousand.tsv}
port=${PORT:-18937}
mkdir -p "$(dirname "$out")"
scratch=$(mktemp -d)
started=()
cleanup() {
  for id in "${started[@]}"; do kill "$id" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap cleanup EXIT

# The first and the last CPU that may be used: for the client and the disturbing process, and for the server.
mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")' 2>/dev/null ||
  seq 0 $(($(nproc) - 1)))
first=${cpus[0]} last=${cpus[-1]}

# The client is what is tested: the server gets its CPU, if this user may give it, and knows for how long its clients
# wait. With its usual patience of a second, all answers at 1.2 times the capacity are late for 200 ms at first.
favoured=$(nice -n -15 true 2>/dev/null && echo -15 || echo 0)
taskset -c "$last" nice -n "$favoured" "$bin/highwater-arena" --listen "127.0.0.1:$port" --metrics off --log off --workers 1 \
  --patience 200ms &
started+=($!)
url="http://127.0.0.1:$port"
for ((tries = 0; ; tries++)); do
  ! "$bin/highwater" load "$url/plaintext" --warmup 0s --duration 10ms --json >"$scratch/json" 2>"$scratch/said" || break
  if [ "$tries" = 100 ] || ! kill -0 "${started[0]}" 2>/dev/null; then
    printf 'load-thousand: %s does not answer: %s\n' "$url" "$(tail -n 1 "$scratch/said")" >&2
    exit 1
  fi
  sleep 0.1
done

# field NAME: a number of the report; the points of its series have the same names.
field() { sed -e 's/"series":\[[^]]*\]//' -e "s/.*\"$1\":\([-0-9.e]*\|null\)[,}].*/\1/" "$scratch/json"; }

printf 'run\tnice\tload\ttransport\tstatus\tgoodput\tok\tnon_2xx\ttimeouts\tsent\tnot_sent\trate_ratio\twaited\tstood_us\n' >"$out"
loads=(1.2 2 3 4)
for ((run = 0; run < runs; run++)); do
  load=${loads[run % 4]}
  nice=$(((run / 4) % 4 == 3 ? 19 : 0))
  transport=$([ $(((run / 16) % 2)) = 0 ] && echo auto || echo epoll)
  # A millisecond of work each: 1000 per second at most.
  rate=$(awk "BEGIN { print $load * 1000 }")
  if [ "${BUSY:-yes}" = yes ]; then
    taskset -c "$first" timeout 20 sh -c 'while :; do :; done' &
  else
    sleep 0 &
  fi
  busy=$!
  started+=("$busy")
  status=0
  taskset -c "$first" nice -n "$nice" timeout 60 "$bin/highwater" load "$url/work?us=1000" --json --quiet \
    --rate "$rate" --close --deadline 200ms --connections 2000 --warmup 200ms --duration 500ms \
    --seed "$run" --transport "$transport" >"$scratch/json" 2>"$scratch/said" || status=$?
  kill "$busy" 2>/dev/null || true
  wait "$busy" 2>/dev/null || true
  started=("${started[0]}")
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$run" "$nice" "$load" "$transport" "$status" \
    "$(field goodput_per_s)" "$(field ok)" "$(field non_2xx)" "$(field timeouts)" "$(field sent)" \
    "$(field not_sent)" "$(field rate_ratio)" "$(field client_waited)" "$(field client_stood_us)" >>"$out"
done

# The distribution of goodput, and which runs had none.
summary() { # NICE
  awk -F'\t' -v nice="$1" 'NR > 1 && $2 == nice && $6 != "null" { print $6 }' "$out" | sort -g | awk -v nice="$1" '
    { value[NR] = $1; zeros += ($1 <= 0) }
    END {
      if (NR) printf "nice %2d: %d runs, goodput/s: least %s, p1 %s, median %s, greatest %s; %d without any\n",
        nice, NR, value[1], value[int(NR * 0.01) + 1], value[int((NR + 1) / 2)], value[NR], zeros
    }'
}
summary 0
summary 19
awk -F'\t' 'NR > 1 { count[$5]++ } END { for (status in count) print "exit status " status ": " count[status] " runs" }' "$out"
awk -F'\t' 'NR > 1 && $6 == "null" { count++ } END { print count + 0 " runs measured nothing" }' "$out"
if awk -F'\t' 'NR > 1 && $6 != "null" && !($6 > 0) { print; found = 1 } END { exit !found }' "$out"; then
  echo "load-thousand: these runs reported no goodput for a server that answers; see $out" >&2
  exit 1
fi
