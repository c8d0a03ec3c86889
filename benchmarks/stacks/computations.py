"""A computation of each package, as a program whose ``solve()`` returns a known number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation of one package.

    Attributes:
        module: Module to preload.
        body: Lines of ``solve()``, which returns a number.
        expected: That number.
        requirements: What to install.
        limits: Limits that differ from the defaults, apart from time.
        writes: True if it writes files, which tier B forbids.
    """

    module: str
    body: str
    expected: float
    requirements: tuple[str, ...]
    limits: dict[str, Any] = field(default_factory=dict)
    writes: bool = False

    @property
    def program(self) -> str:
        """Text of the program, which imports the package when it is called."""
        return "def solve():\n" + "".join(f"    {line}\n" for line in self.body.strip().splitlines())


COMPUTATIONS = {
    "numpy": Computation(
        "numpy",
        "import numpy as np\nreturn float((np.linalg.inv(np.eye(300) * 2) @ np.ones(300)).sum())",
        150.0,
        ("numpy",),
    ),
    "scipy": Computation(
        "scipy.optimize",
        "from scipy.optimize import minimize\nreturn float(minimize(lambda x: (x[0] - 3) ** 2, [0.0]).x[0])",
        3.0,
        ("scipy",),
    ),
    "pandas": Computation(
        "pandas",
        "import pandas as pd\nframe = pd.DataFrame({'k': [1, 2, 1], 'v': [3.0, 4.0, 5.0]})\n"
        "return float(frame.groupby('k').v.sum().loc[1])",
        8.0,
        ("pandas",),
    ),
    "scikit-learn": Computation(
        "sklearn.linear_model",
        "import numpy as np\nfrom sklearn.linear_model import LogisticRegression\n"
        "x = np.arange(200.0)[:, None]\ny = (x[:, 0] > 99).astype(int)\n"
        "return float(LogisticRegression(max_iter=1000).fit(x, y).score(x, y))",
        1.0,
        ("scikit-learn",),
    ),
    "sympy": Computation(
        "sympy",
        "import sympy\nx = sympy.Symbol('x')\nreturn float(sympy.integrate(x ** 2, (x, 0, 3)))",
        9.0,
        ("sympy",),
    ),
    "networkx": Computation(
        "networkx",
        "import networkx as nx\nreturn nx.shortest_path_length(nx.path_graph(100), 0, 99)",
        99.0,
        ("networkx",),
    ),
    "numba": Computation(
        "numba",
        "import numba, numpy\n@numba.njit\ndef total(values):\n    s = 0.0\n    for v in values:\n        s += v\n"
        "    return s\n"
        "@numba.njit(parallel=True)\ndef wide(values):\n    s = 0.0\n    for i in numba.prange(len(values)):\n"
        "        s += values[i]\n    return s\nreturn total(numpy.ones(1000)) + wide(numpy.ones(1000))",
        2000.0,
        ("numba",),
    ),
    "numba, `cache=True`": Computation(
        "numba",
        "import numba\n@numba.njit(cache=True)\ndef double(x):\n    return 2 * x\nreturn double(21.0)",
        42.0,
        ("numba",),
        writes=True,
    ),
    "ortools": Computation(
        "ortools.sat.python.cp_model",
        "from ortools.sat.python import cp_model\nm = cp_model.CpModel()\nx = m.new_int_var(0, 100, 'x')\n"
        "y = m.new_int_var(0, 100, 'y')\nm.add(2 * x + 3 * y <= 60)\nm.maximize(3 * x + 4 * y)\n"
        "s = cp_model.CpSolver()\ns.parameters.num_workers = 2\ns.solve(m)\nreturn s.objective_value",
        90.0,
        ("ortools",),
    ),
    "torch": Computation(
        "torch",
        "import torch\nx = torch.ones(500, 500, requires_grad=True)\n(x @ x).sum().backward()\n"
        "return float(x.grad[0, 0])",
        1000.0,
        ("torch==2.13.0",),
    ),
    "jax": Computation(
        "jax",
        "import jax, jax.numpy as jnp\nf = jax.jit(jax.grad(lambda x: jnp.sum(x ** 2)))\n"
        "return float(f(jnp.arange(1000.0))[500]) + float((jnp.ones((500, 500)) @ jnp.ones((500, 500))).sum()) * 0",
        1000.0,
        ("jax",),
    ),
}
