"""Libraries of machine code that are optimised once, within what calls them, and not by themselves too.

Numba optimises each function with all that it calls, and makes machine code of it, before it looks at the
caller, which links that in and begins anew. The innermost part of a kernel ten deep is optimised ten times,
and the machine code of parts is never run. Here, a function stays as it was written until somebody wants an
address.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm

from pymc_dp.upstream.numba_private import JITCodeLibrary, cpu_target, global_compiler_lock


class PartLibrary(JITCodeLibrary):
    """Code of a function, which becomes machine code when its address, or that of a caller, is asked for."""

    def __init__(self, codegen: Any, name: str):
        super().__init__(codegen, name)
        self._defined: set[str] = set()
        self._environments: dict[str, Any] = {}

    @property
    def codegen(self) -> Any:
        """Whom numba tells where a function's environment is: it is kept until there is machine code."""
        return self._codegen if self._finalized else self

    def set_env(self, name: str, environment: Any) -> None:
        """Keep an environment."""
        self._environments[name] = environment

    def add_llvm_module(self, module: Any) -> None:
        """Add code, with local variables in registers: else loops are optimised less well later.

        Numba's passes over single functions do all that those over the whole do again.
        """
        module.data_layout = self._codegen._data_layout
        options = self._codegen._pass_builder()
        for function in module.functions:
            if not function.is_declaration:
                self._defined.add(function.name)
                passes = llvm.create_new_function_pass_manager()
                passes.add_sroa_pass()
                passes.run(function, options)
        self._final_module.link_in(module)

    def add_linking_library(self, library: Any) -> None:
        """Note what the code calls."""
        if not isinstance(library, PartLibrary):
            library._ensure_finalized()
        self._linking_libraries.append(library)

    def get_pointer_to_function(self, name: str) -> int:
        """Return an address; 0 if there is no such function, which is not worth any machine code."""
        if not self._finalized and name not in self._defined:
            return 0
        return super().get_pointer_to_function(name)  # type: ignore[no-any-return]

    def _called(self, found: dict[Any, None]) -> None:
        """Collect what is called by what the code calls, where that is not linked in yet, then the code."""
        found[self] = None
        for library in self._linking_libraries:
            if library not in found:
                if _is_open(library):
                    library._called(found)
                else:
                    found[library] = None
        found[self] = found.pop(self)  # to the end, after all of them

    def _copy(self) -> Any:
        """Return the code as another library links it in, which may drop what it does not call."""
        copy = self._final_module.clone()
        for function in copy.functions:
            if function.name in self._defined and function.linkage.name == "external":
                function.linkage = "linkonce_odr"
        return copy

    def finalize(self) -> None:
        """Link everything in, optimise it and make machine code.

        The linker leaves out what nothing calls that it has seen, so that whoever calls a function is linked
        in before the library of that function.
        """
        self._codegen._check_llvm_bugs()
        self._raise_if_finalized()
        called: dict[Any, None] = {}
        self._called(called)
        called.pop(self)
        environments = dict(self._environments)
        for library in reversed(called):
            self._reload_init.update(library._reload_init)
            if _is_open(library):
                self._final_module.link_in(library._copy())
                environments |= library._environments
            else:
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._optimize_final_module()
        self._final_module.verify()
        self._finalize_final_module()
        for name, environment in environments.items():
            if self._codegen._engine.is_symbol_defined(name):
                self._codegen.set_env(name, environment)


def _is_open(library: Any) -> bool:
    return isinstance(library, PartLibrary) and not library._finalized


@contextmanager
def optimised_once() -> Iterator[None]:
    """Let functions that are compiled now be parts of what is compiled first.

    Whoever else calls such a function later finds what numba's own libraries are. The lock keeps other
    threads from compiling meanwhile.
    """
    with global_compiler_lock:
        codegen = cpu_target.target_context.codegen()
        kept, codegen._library_class = codegen._library_class, PartLibrary
        try:
            yield
        finally:
            codegen._library_class = kept
