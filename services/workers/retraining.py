"""The retrain worker: trains in a child process that dies with it and resumes where it was."""

from __future__ import annotations

from engine.adapters.by_format import TrainerByName
from engine.adapters.command_trainer import CommandTrainer
from engine.adapters.torch.trainer import TorchTrainer
from engine.jobs.ledger import Lease
from engine.ports import Trainer
from engine.queries.erasures import runs_that_lost_rows
from engine.stages.train import HYDRANET, train
from services.settings import Settings, operators_environment
from services.wiring import opened
from services.workers.app import run_worker
from services.workers.roles import final


def run(settings: Settings) -> int:
    """Work until told to stop; returns the exit code."""
    with opened(settings) as wiring:
        with wiring.database.read() as session:
            erased = runs_that_lost_rows(session, list(wiring.copies.runs()))
        for run_id in erased:  # this machine may have been off while something that they were laid out from was erased
            wiring.copies.forget_run(run_id)
        trainers: dict[str, Trainer] = {HYDRANET: TorchTrainer(settings.child_environment())}
        for name, command in settings.trainers.items():
            trainers[name] = CommandTrainer(command, operators_environment(), wiring.model_check)
        trainer = TrainerByName(trainers)

        def work(lease: Lease) -> object:
            # The run's own folder: another attempt on this machine goes on from the checkpoints in it.
            folder = wiring.copies.run_folder(lease.subject_id)
            folder.mkdir(parents=True, exist_ok=True)
            return train(wiring.database, wiring.blobs, trainer, lease, folder)

        return run_worker("retraining", settings, {"train": final(work)}, wiring.database)
