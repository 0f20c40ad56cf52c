# Ends what commands have started, once the process that started them has died without doing so.
#
# Standard input is a pipe whose other end that process alone holds. It writes a line for each change: the mark of a
# tree and what is known of it, or the mark alone once nothing of it runs:
#   m:PID:START  the main process, which leads a session and a group of its own
#   l:PID:START  a process that was left running
#   t            nothing but the mark is known, which may be the beginning of longer ones
# Reading ends when that process does, however it ends.
trap '' HUP INT QUIT TERM
live=
while read -r key items; do
  kept=
  for entry in $live; do
    case $entry in "$key="*) ;; *) kept="$kept $entry" ;; esac
  done
  for item in $items; do kept="$kept $key=$item"; done
  live=$kept
done
[ -n "$live" ] || exit 0

set --
for entry in $live; do set -- "$@" -e "${entry%%=*}"; done

# Notes a process: its number and what stands in /proc/PID/stat behind the name.
note() {
  case $2 in Z | X) return ;; esac
  [ "$1" = "$$" ] && return
  table="$table $1:$3:$4:$5"
  case $marked in *" $1 "*) found="$found$1 "; return ;; esac
  for entry in $live; do
    item=${entry#*=}
    case $item in
    m:*)
      main=${item#m:}
      main=${main%:*}
      if [ "$1" = "$main" ] || [ "$4" = "$main" ] || [ "$5" = "$main" ]; then found="$found$1 "; return; fi
      ;;
    "l:$1:${21}") found="$found$1 "; return ;;
    esac
  done
}

# Finds all that belongs to the trees: by mark, number, group and session, and by parent.
look() {
  marked=" " found=" " table=
  for file in $(grep -lsF "$@" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    marked="$marked${pid%/environ} "
  done
  for file in /proc/[0-9]*/stat; do
    line=
    { read -r line <"$file"; } 2>/dev/null
    [ -n "$line" ] || continue
    pid=${file#/proc/}
    note "${pid%/stat}" ${line##*) }
  done
  more=1
  while [ $more = 1 ]; do
    more=0
    for row in $table; do
      pid=${row%%:*} ids=${row#*:}
      case $found in *" $pid "*) continue ;; esac
      parent=${ids%%:*} ids=${ids#*:}
      for id in $parent "${ids%%:*}" "${ids#*:}"; do
        case $found in *" $id "*) found="$found$pid " more=1; break ;; esac
      done
    done
  done
}

# Twice nothing: a process that was just being started is met the second time.
empty=0 rounds=0
while [ $empty -lt 2 ] && [ $rounds -lt 100 ]; do
  look "$@"
  if [ "$found" = " " ]; then
    empty=$((empty + 1))
    sleep 0.05
  else
    empty=0
    kill -KILL $found 2>/dev/null
  fi
  rounds=$((rounds + 1))
done
