# Commands in guests; sourced by main.sh.

# exec_in_guest NAME [--limit S] COMMAND
exec_in_guest() {
    local name=${1:-} limit=60
    [ $# -ge 2 ] || die "exec needs the guest's name and a command"
    shift
    if [ "$1" = --limit ]; then
        [ $# -ge 3 ] || die "--limit needs seconds and a command"
        limit=$2
        shift 2
    fi
    guest_runs "$name" || { printf 'no guest called %s runs\n' "$name" >&2; exit 125; }
    local status=0
    run_in_guest "$name" "$limit" "$*" || status=$?
    exit "$status"
}

# run_in_guest NAME LIMIT COMMAND: copies the output as it arrives; returns the command's status, 124 after the
# limit, or 125 if the guest ends. A signal to this script ends the command in the guest.
run_in_guest() {
    local folder id end=$((SECONDS + $2)) status='' out err pause wait=2
    folder=$(guest_folder "$1")
    id=$BASHPID-$SRANDOM
    printf '%s\n' "$3" >"$folder/$id.cmd"
    : >"$folder/$id.out"
    : >"$folder/$id.err"
    exec {out}<"$folder/$id.out" {err}<"$folder/$id.err"
    trap 'ring "$folder" "kill KILL $id"; exit 143' TERM INT HUP
    ring "$folder" "run $id"
    while [ -z "$status" ]; do
        if [ -s "$folder/$id.rc" ]; then
            status=$(<"$folder/$id.rc")
        elif ! guest_runs "$1"; then
            status=125
        elif [ "$SECONDS" -ge "$end" ]; then
            ring "$folder" "kill KILL $id"
            status=124
        else
            # Growing waits up to a quarter of a second: most commands are short.
            printf -v pause '0.%02d' "$wait"
            nap "$pause"
            wait=$((wait < 20 ? wait + wait / 2 : 25))
        fi
        copy_new "$out"
        copy_new "$err" >&2
    done
    trap - TERM INT HUP
    exec {out}<&- {err}<&-
    rm -f "$folder/$id".{cmd,out,err,rc}
    return "$status"
}

# ring FOLDER LINE: writes a line to the guest's second serial port. Short lines of several writers do not mix
# (pipe(7), PIPE_BUF).
ring() {
    # Opened for reading, too: without a reader, opening it would wait.
    printf '%s\n' "$2" 1<>"$1/bell"
}

# copy_new DESCRIPTOR: everything up to the end of the file, as cat does, but without a process. Many guests' commands
# wait at a time.
copy_new() {
    local LC_ALL=C text=''
    while IFS= read -r -d '' -u "$1" text; do
        printf '%s\0' "$text"
    done
    printf '%s' "$text"
}
