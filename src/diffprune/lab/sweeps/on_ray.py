"""Workers of a sweep as tasks of Ray, on this machine or on a cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from diffprune.errors import MissingPackageError, ProcessError
from diffprune.lab.sweeps.trials import Job, work


def work_on_ray(job: Job, workers: int) -> None:
    """Let Ray run the workers, wherever it has room.

    A cluster is found as Ray finds it, by `RAY_ADDRESS`; without one, Ray starts on
    this machine. All nodes need the task's file and the folder of the sweep.

    Raises:
        MissingPackageError: If Ray is not installed.
        ProcessError: If a worker failed.
    """
    ray = _import_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(include_dashboard=False, logging_level="error")
    needs = {"num_cpus": job.threads, "num_gpus": int(job.device.startswith("cuda"))}
    task = ray.remote(**needs)(work)
    try:
        ray.get([task.remote(_anywhere(job)) for _ in range(workers)])
    except ray.exceptions.RayError as error:
        raise ProcessError(
            f"a worker of the sweep failed on Ray: {error}\nThe same call continues "
            "where it stopped."
        ) from error
    finally:
        if is_ours:
            ray.shutdown()


def _anywhere(job: Job) -> Job:
    """The same with whole paths: a task of Ray may start in another folder."""
    place, _, function = job.task.rpartition(":")
    is_file = Path(place).is_file()
    task = f"{Path(place).resolve()}:{function}" if is_file else job.task
    return replace(job, task=task, out=job.out.resolve())


def _import_ray() -> Any:  # noqa: ANN401 - a module
    try:
        import ray  # noqa: PLC0415 # pyright: ignore[reportMissingImports] - optional
    except ImportError as error:
        raise MissingPackageError(
            "`--on ray` needs Ray, which is not installed.\n"
            "Install it with `pip install 'diffprune[ray]'`, or leave `--on` out."
        ) from error
    return ray
