"""Tier B's walls, put up around a child of the test's own."""

import os
import resource

import pytest

from evaluators.contained import kernel, landlock
from evaluators.contained.requests import SpawnRequest
from evaluators.contained.tier_b import LandlockTier

ORDER = SpawnRequest("candidate", 0, {}, 0, 0, 16, 0, 0)


@pytest.mark.parametrize("own_user", [True, False])
def test_the_kernel_bounds_threads_where_candidates_have_a_user_id_of_their_own(own_user):
    if not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    bounded = tuple(2048 if each == resource.RLIM_INFINITY else min(2048, each) for each in before[1:] * 2)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            kernel.forbid_new_privileges()
            LandlockTier(("/usr",), (), "", own_user=own_user).isolate(ORDER)
            code = int(resource.getrlimit(resource.RLIMIT_NPROC) != (bounded if own_user else before))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
