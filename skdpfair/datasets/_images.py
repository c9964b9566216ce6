"""MNIST, faces and CIFAR-10: found in a local folder, checked, never bundled or made up."""

import gzip
import io
import zlib

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from skdpfair._validate import integer, number, one_of
from skdpfair.datasets._files import check_digest, data_folder
from skdpfair.datasets._image_facts import ABOUT_CIFAR10, ABOUT_FACES, ABOUT_MNIST
from skdpfair.exceptions import DataIntegrityError

# of MNIST the digests of what the files hold, for they exist compressed in several ways
_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "utkface_32_rgb.npz": "60806218eb17ed5ae5d4bc8343fb010883b78683b81bee9b829f242d25a39886",
    "cifar10_32_rgb_subset.npz": "8d0fef2cd0385441d49d838738140f2eabb776ec9ab0ad04b789fa2b4cb5f5c0",
}
_DIGITS = [str(digit) for digit in range(10)]
_GENDERS = ["male", "female"]
_RACES = ["White", "Black", "Asian", "Indian", "Others"]
_OBJECTS = ["airplane", "automobile", "bird", "cat", "deer"]
_OBJECTS += ["dog", "frog", "horse", "ship", "truck"]


def fetch_mnist(
    *,
    subset="all",
    data_home=None,
    download_if_missing=True,
    as_frame=True,
    return_X_y=False,
    n_retries=3,
    delay=1.0,
):
    """Load MNIST, handwritten digits, from a local folder, and check its digests.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The pictures to train on, those to test on, or both, in this order.
    data_home : path-like or None, default=None
        The folder that holds the four files ``train-images-idx3-ubyte`` and so on, plain or with
        ``.gz``, itself or in a subfolder ``mnist``. None means the folder that the environment
        variable ``SKDPFAIR_DATA`` names, else the subfolder ``skdpfair`` of scikit-learn's data
        home.
    download_if_missing : bool, default=True
        As in scikit-learn. Without a recorded address, both values raise if a file is missing.
    as_frame : bool, default=True
        Return ``target`` and ``sensitive_features`` as pandas objects; else numpy arrays. Pictures
        are an array either way.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    n_retries : int, default=3
        As in scikit-learn, at least 1. Of no effect as long as no address is recorded.
    delay : float, default=1.0
        As in scikit-learn, seconds between retries, >= 0. Of no effect either.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        With the attributes

        data : ndarray of shape (n_samples, 28, 28), float32
            Grey values divided by 255, in [0, 1].
        target : Series of shape (n_samples,), int64
            The digit, named ``digit``.
        sensitive_features : DataFrame of shape (n_samples, 1)
            The digit again, as text.
        target_names : list of str
            What the values of the target stand for.
        DESCR : str
            What the data are, where they come from, their terms.

    Raises
    ------
    DataIntegrityError
        If a file is missing, or its sha256 is not the recorded one; the message says which.

    Examples
    --------
    >>> from skdpfair.datasets import fetch_mnist
    >>> fetch_mnist(data_home="no-such-folder")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: train-images-idx3-ubyte is not in no-such-folder...
    """
    _check(subset, n_retries, delay)
    folder = data_folder(data_home)
    starts = {"all": ("train", "t10k"), "train": ("train",), "test": ("t10k",)}[subset]
    where = folder, "mnist", download_if_missing
    images = [_idx(f"{start}-images-idx3-ubyte", 16, *where) for start in starts]
    labels = np.concatenate([_idx(f"{start}-labels-idx1-ubyte", 8, *where) for start in starts])
    data = _unit(np.concatenate(images).reshape(-1, 28, 28))
    target = pd.Series(labels.astype(np.int64), name="digit")
    sensitive = pd.DataFrame({"digit": _named(labels, _DIGITS)})
    return _bunch(data, target, sensitive, _DIGITS, ABOUT_MNIST, as_frame, return_X_y)


def fetch_faces(
    *,
    subset="all",
    data_home=None,
    download_if_missing=True,
    as_frame=True,
    return_X_y=False,
    n_retries=3,
    delay=1.0,
):
    """Load a part of UTKFace, faces of 32 x 32, from a local folder, and check its digest.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The 10400 pictures to train on, the 2600 to test on, or all 13000.
    data_home : path-like or None, default=None
        The folder that holds ``utkface_32_rgb.npz``, itself or in a subfolder ``faces``; None as
        in `fetch_mnist`.
    download_if_missing : bool, default=True
        As in `fetch_mnist`.
    as_frame : bool, default=True
        Return all but the pictures as pandas objects; else numpy arrays.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    n_retries, delay : int and float, default=3 and 1.0
        As in `fetch_mnist`.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        With the attributes

        data : ndarray of shape (n_samples, 3, 32, 32), float32
            Red, green and blue values divided by 255, in [0, 1].
        target : Series of shape (n_samples,), int64
            The gender, 0 male or 1 female, named ``gender``.
        sensitive_features : DataFrame of shape (n_samples, 1)
            The column ``race``, as text.
        attributes : DataFrame of shape (n_samples, 3)
            ``age`` (1 to 116), ``gender`` and ``race``, to make other targets or groups of.
        target_names : list of str
            What the values of the target stand for.
        DESCR : str
            What the data are, where they come from, their terms.

    Raises
    ------
    DataIntegrityError
        If the file is missing, or its sha256 is not the recorded one; the message says which.

    Examples
    --------
    >>> from skdpfair.datasets import fetch_faces
    >>> fetch_faces(data_home="no-such-folder")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: utkface_32_rgb.npz is not in no-such-folder...
    """
    _check(subset, n_retries, delay)
    folder = data_folder(data_home)
    parts = _npz("utkface_32_rgb.npz", folder, "faces", download_if_missing, subset)
    gender, race = _named(parts["gender"], _GENDERS), _named(parts["race"], _RACES)
    attributes = pd.DataFrame({"age": parts["age"].astype(np.int64), "gender": gender})
    attributes["race"] = race
    target = pd.Series(parts["gender"].astype(np.int64), name="gender")
    about = _GENDERS, ABOUT_FACES, as_frame, return_X_y
    found = _bunch(_channels_first(parts["images"]), target, attributes[["race"]], *about)
    if not return_X_y:
        found.attributes = attributes if as_frame else attributes.to_numpy(object)
    return found


def fetch_cifar10(
    *,
    subset="all",
    data_home=None,
    download_if_missing=True,
    as_frame=True,
    return_X_y=False,
    n_retries=3,
    delay=1.0,
):
    """Load a part of CIFAR-10 from a local folder, and check its digest.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The 10000 pictures to train on, the 2000 to test on, or all 12000.
    data_home : path-like or None, default=None
        The folder that holds ``cifar10_32_rgb_subset.npz``, itself or in a subfolder ``cifar10``;
        None as in `fetch_mnist`.
    download_if_missing : bool, default=True
        As in `fetch_mnist`.
    as_frame : bool, default=True
        Return ``target`` and ``sensitive_features`` as pandas objects; else numpy arrays.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    n_retries, delay : int and float, default=3 and 1.0
        As in `fetch_mnist`.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        With the attributes

        data : ndarray of shape (n_samples, 3, 32, 32), float32
            Red, green and blue values divided by 255, in [0, 1].
        target : Series of shape (n_samples,), int64
            The class, 0 to 9, named ``label``.
        sensitive_features : DataFrame of shape (n_samples, 1)
            The class again, as text: the data have no protected attribute.
        target_names : list of str
            What the values of the target stand for.
        DESCR : str
            What the data are, where they come from, their terms.

    Raises
    ------
    DataIntegrityError
        If the file is missing, or its sha256 is not the recorded one; the message says which.

    Examples
    --------
    >>> from skdpfair.datasets import fetch_cifar10
    >>> fetch_cifar10(data_home="no-such-folder")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: cifar10_32_rgb_subset.npz is not in no-such-folder...
    """
    _check(subset, n_retries, delay)
    folder = data_folder(data_home)
    parts = _npz("cifar10_32_rgb_subset.npz", folder, "cifar10", download_if_missing, subset)
    target = pd.Series(parts["label"].astype(np.int64), name="label")
    sensitive = pd.DataFrame({"label": _named(parts["label"], _OBJECTS)})
    about = _OBJECTS, ABOUT_CIFAR10, as_frame, return_X_y
    return _bunch(_channels_first(parts["images"]), target, sensitive, *about)


def _check(subset, n_retries, delay):
    one_of("subset", subset, ("all", "train", "test"))
    integer("n_retries", n_retries)
    number("delay", delay, low=0)


def _idx(name, offset, *where):
    """Return the bytes after the header of an idx file."""
    return np.frombuffer(_content(name, *where, packed=True), np.uint8, offset=offset)


def _npz(name, folder, subfolder, download_if_missing, subset):
    """Return the arrays of an npz file, of one subset."""
    content = _content(name, folder, subfolder, download_if_missing)
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        split = file["split"]
        rows = slice(None) if subset == "all" else split == ("train", "test").index(subset)
        return {key: file[key][rows] for key in file.files}


def _content(name, folder, subfolder, download_if_missing, packed=False):
    """Return the checked bytes of a file, unpacked if it may be ``packed``."""
    for place in (folder / subfolder, folder):
        for path in (place / name, place / f"{name}.gz") if packed else (place / name,):
            if path.is_file():
                content = path.read_bytes()
                if path.suffix == ".gz":
                    content = _unpacked(path, content)
                check_digest(path, content, _SHA256[name], "sha256")
                return content
    why = " No address to download it from is recorded." if download_if_missing else ""
    either = ", plain or compressed as .gz" if packed else ""
    raise DataIntegrityError(
        f"{name} is not in {folder} (nor in its subfolder {subfolder}); expected that file"
        f"{either}, of sha256 {_SHA256[name]}.{why} Name its folder by data_home= or by the "
        "environment variable SKDPFAIR_DATA."
    )


def _unpacked(path, content):
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataIntegrityError(
            f"{path} is no whole gzip file: {error}. Replace it by the original."
        ) from error


def _unit(images):
    """Return bytes as float32 in [0, 1]."""
    return np.divide(images, np.float32(255), dtype=np.float32)


def _channels_first(images):
    return _unit(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _named(codes, names):
    """Return codes as a categorical whose categories are all the public names."""
    return pd.Categorical.from_codes(codes, names)


def _bunch(data, target, sensitive, target_names, about, as_frame, return_X_y):
    if not as_frame:
        target, sensitive = target.to_numpy(), sensitive.to_numpy(object)
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        sensitive_features=sensitive,
        target_names=list(target_names),
        DESCR=about,
    )
