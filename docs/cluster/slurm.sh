#!/bin/bash
# A Ray cluster on the machines of a Slurm job, and one run on it. From a folder that all machines see, with the
# environment active (sbatch passes it on):
#   sbatch --nodes=4 docs/cluster/slurm.sh algorithm=fedmuon rounds=500
#SBATCH --job-name=fedmuon
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
set -euo pipefail

address=$(hostname -i | awk '{print $1}'):6379
shared=$SLURM_SUBMIT_DIR/shared # the app, decoded data and what clients keep
others=$((SLURM_JOB_NUM_NODES - 1))
mkdir -p "$shared"

ray start --head --node-ip-address="${address%:*}" --port=6379 --include-dashboard=false
trap 'ray stop' EXIT
if [ "$others" -gt 0 ]; then
    srun --nodes=$others --ntasks=$others --exclude="$SLURMD_NODENAME" ray start --address="$address" --block &
    until [ "$(ray status --address="$address" | grep -c ' node_')" -gt "$others" ]; do sleep 2; done
fi
# a job that was killed goes on from its last checkpoint when it is submitted again with its number as RUN
fedmuon engine=simulation engine.ray="$address" engine.shared="$shared" \
    resume=auto hydra.run.dir="$SLURM_SUBMIT_DIR/runs/${RUN:-$SLURM_JOB_ID}" "$@"
