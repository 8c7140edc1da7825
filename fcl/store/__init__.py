"""Object stores: a location is a local path or a :class:`RemotePath`, and both are opened alike.

``locate`` turns what a user wrote into a location. A :class:`RemotePath` offers what fcl uses of
``pathlib.Path``. ``clients.py`` sends single requests, by obstore or fsspec, and ``web.py`` those to web
servers; ``buckets.py`` keeps several in flight; ``writing.py`` sends outputs. The libraries are imported
when the first URL is opened.
"""

from fcl.store.buckets import Window, changed, gone
from fcl.store.clients import ObjectInfo
from fcl.store.location import (
    Location,
    RemotePath,
    absolute,
    check_no_secrets,
    check_url,
    default_options,
    is_remote,
    kind_of,
    local_folder,
    local_neighbour,
    local_path,
    locate,
    names_beside,
    open_file,
    open_raw,
    put_in_place,
    set_default_options,
    usual_options,
)

__all__ = [
    "Location",
    "ObjectInfo",
    "RemotePath",
    "Window",
    "absolute",
    "changed",
    "check_no_secrets",
    "check_url",
    "default_options",
    "gone",
    "is_remote",
    "kind_of",
    "local_folder",
    "local_neighbour",
    "local_path",
    "locate",
    "names_beside",
    "open_file",
    "open_raw",
    "put_in_place",
    "set_default_options",
    "usual_options",
]
