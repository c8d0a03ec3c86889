# Runs a solution of a Harbor task, then its test, and prints the rewards on the last line.
exec 3>&1 1>&2 < /dev/null
cd @FOLDER@ || exit 1
mkdir -p /logs/verifier /logs/agent
@EXPORTS@
bash /candidate/solve.sh
kill -KILL -1 2> /dev/null  # what the solution left running; this shell is the first process, which the kernel spares
cp -r /candidate/data/tests/. /tests/
bash /tests/test.sh
if [ -s /logs/verifier/reward.json ]; then
    rewards=$(< /logs/verifier/reward.json)
    rewards=${rewards//$'\n'/ }
    printf '{%s%s\n' '@PROBE@' "${rewards#*\{}" >&3
elif [ -s /logs/verifier/reward.txt ]; then
    printf '{%s"reward": %s}\n' '@PROBE@' "$(< /logs/verifier/reward.txt)" >&3
else
    echo "the test wrote neither /logs/verifier/reward.txt nor reward.json" >&2
    exit 1
fi
