from kernelwright.errors import CandidateError as CandidateError
from kernelwright.errors import ConfigError as ConfigError
from kernelwright.errors import HarnessError as HarnessError
from kernelwright.errors import KernelwrightError as KernelwrightError
from kernelwright.errors import MachineError as MachineError
from kernelwright.errors import PolicyError as PolicyError
from kernelwright.errors import SandboxError as SandboxError
from kernelwright.errors import StoreError as StoreError
from kernelwright.errors import TaskError as TaskError
from kernelwright.errors import UsageError as UsageError
from kernelwright.errors import WorkerDied as WorkerDied
from kernelwright.evaluation import EvalOptions as EvalOptions
from kernelwright.evaluation import Evaluator as Evaluator
from kernelwright.evaluation import evaluate as evaluate
from kernelwright.evaluation import evaluate_many as evaluate_many
from kernelwright.records import Candidate as Candidate
from kernelwright.records import Evaluation as Evaluation
from kernelwright.records import Task as Task
from kernelwright.search.optimize import optimize as optimize
from kernelwright.tasks import load_candidate as load_candidate
from kernelwright.tasks import load_task as load_task

__version__: str
__all__: list[str]
