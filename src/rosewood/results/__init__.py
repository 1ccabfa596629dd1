"""Typed results on disk: what runs, evaluations, attacks and experiments leave behind as JSON; a file for each."""

from rosewood.results.attack import (
    AttackedExample,
    AttackReport,
    AttackResult,
    AttackStatus,
    AttackSummary,
    ChangedWord,
    FilteredAccuracy,
    FinishedBlock,
    TestFile,
)
from rosewood.results.evaluation import (
    AnomalyResult,
    AppliedNoise,
    ClassResult,
    Evaluation,
    GroupResult,
    LiveAttack,
    Mean,
    MissingSet,
    ReliabilityPoint,
    Role,
    SetResult,
)
from rosewood.results.experiment import (
    HARDENING,
    START,
    CandidateFigures,
    CellResult,
    CellState,
    Change,
    ComparedCell,
    ComparedFigure,
    Comparison,
    Costs,
    Decision,
    Hardening,
    MatchedMoment,
    Moment,
    Schedule,
)
from rosewood.results.files import Count, ResultFile, ResultPart, Share, append, installed_versions, now, write
from rosewood.results.run import Average, AveragedRun, Metrics, RunInfo, Status
