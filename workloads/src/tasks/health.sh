#!/bin/sh
# Prints the health of the tasks as JSON, then the tasks of each state, then what each task depends on.
# A task is a JSON file with one field a line, as the controller writes it.
cd "$(dirname "$0")/.." || exit 1
LC_ALL=C exec awk -F'"' '
FNR == 1 { name = FILENAME; gsub(/^.*\/|\.json$/, "", name); names[++tasks] = name }
$2 == "state" { state[name] = $4 }
$2 == "depends_on" { for (at = 4; at < NF; at += 2) needs[name] = needs[name] " " $at }
END {
    for (at = 1; at <= tasks; at++) {
        name = names[at]
        if (!(name in state)) { unreadable++; continue }
        of_state[state[name]] = of_state[state[name]] " " name
        if (state[name] == "done") continue
        open++
        waits = 0
        count = (name in needs) ? split(needs[name], others, " ") : 0
        for (other = 1; other <= count; other++) waits = waits || !(others[other] in state) || state[others[other]] != "done"
        blocked += waits
    }
    printf "{\"tasks\":%d,\"open\":%d,\"blocked\":%d,\"unreadable\":%d}\n", tasks - unreadable, open, blocked, unreadable
    count = split("done running open", order, " ")
    for (at = 1; at <= count; at++) if (order[at] in of_state) print order[at] ":" of_state[order[at]]
    for (at = 1; at <= tasks; at++) if (names[at] in needs) print names[at] " depends on:" needs[names[at]]
}' tasks/*.json
