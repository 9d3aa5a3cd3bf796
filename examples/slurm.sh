#!/bin/sh
# Slurm: runs several plans of one project, each on a node. In the project's folder:
#
#     sbatch slurm.sh
#
# The project, ralph and HOME must be on a disk that the nodes share. ralph gets the
# environment from which you call sbatch, so PATH and API keys come along.
#
# ralph ends with 0 when every task passes. After 3, 75 or a signal the job is
# requeued and goes on. After 2, 4 and 5 a person is needed: the job has failed,
# ../ralph-N.log says why, and `sbatch --array=N slurm.sh` starts plan N again.

# CHANGE: a number for each plan, from 0
#SBATCH --array=0-1
#SBATCH --job-name=ralph
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=../ralph-%a.log
# Five minutes before the end of the slot, to this script alone.
#SBATCH --signal=B:TERM@300

# CHANGE: the plans, in the order of their numbers
set -- plans/prices/prd.json plans/search/prd.json

job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
shift "$SLURM_ARRAY_TASK_ID"

stopping=
trap 'stopping=1; kill -TERM "$ralph"' TERM
ralph run --prd "$1" &
ralph=$!
wait "$ralph"
code=$?
# A signal ends the wait before ralph has ended.
while [ "$stopping" ]; do
  stopping=
  wait "$ralph"
  code=$?
done

case $code in
3 | 75 | 129 | 130 | 143) ;;
*) exit "$code" ;;
esac
# Not if somebody cancelled the job.
if [ "$(squeue -h -o %T -j "$job")" = RUNNING ]; then
  scontrol requeue "$job"
fi
exit "$code"
