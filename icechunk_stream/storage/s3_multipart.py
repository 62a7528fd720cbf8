"""Large objects written in parts, each part tried again by itself; visible when all are there."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.values import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from icechunk_stream.storage.retry import Retry
    from icechunk_stream.storage.s3_requests import S3Requests
    from icechunk_stream.storage.traits import Traits

_INCOMPLETE = Failure(Trouble.LOST, detail="the answer is incomplete")
_NO_SUCH_UPLOAD = "NoSuchUpload"


@dataclass(frozen=True, slots=True)
class MultipartUpload:
    """One upload through botocore. ``pool`` must not be the pool that waits for it."""

    requests: S3Requests
    retry: Retry
    pool: ThreadPoolExecutor
    part_size: int

    def put(self, name: str, data: memoryview, traits: Traits) -> Version | Failure:
        begun = self._ask(
            self.requests.client.create_multipart_upload,
            Key=name,
            **self.requests.write_params(traits),
            **self.requests.checksum_kind(),
        )
        if isinstance(begun, Failure):
            return begun
        if "UploadId" not in begun:
            return _INCOMPLETE
        upload = {"Key": name, "UploadId": begun["UploadId"]}
        outcome: Version | Failure | None = None
        try:
            outcome = self._send(upload, data)
        finally:
            if not isinstance(outcome, Version):
                self.requests.ask(self.requests.client.abort_multipart_upload, **upload)
        return outcome

    def _send(self, upload: dict[str, Any], data: memoryview) -> Version | Failure:
        starts = range(0, data.nbytes, self.part_size)
        pieces = [data[start : start + self.part_size] for start in starts]
        tasks = [
            self.pool.submit(self._send_part, upload, number, piece)
            for number, piece in enumerate(pieces, 1)
        ]
        try:
            parts = [task.result() for task in tasks]
        finally:
            # No part may arrive after the upload is aborted.
            for task in tasks:
                task.cancel()
            wait(tasks)
        sent = [part for part in parts if not isinstance(part, Failure)]
        failed = next((part for part in parts if isinstance(part, Failure)), None)
        return failed or self._complete(upload, sent, data.nbytes)

    def _send_part(
        self, upload: dict[str, Any], number: int, piece: memoryview
    ) -> dict[str, Any] | Failure:
        body = bytes(piece)
        checksum = self.requests.checksum_of(body)
        send = partial(self.requests.client.upload_part, Body=body, PartNumber=number)
        part = self._ask(send, **upload, **checksum)
        if isinstance(part, Failure):
            return part
        return {"PartNumber": number, "ETag": part.get("ETag", "")} | checksum

    def _complete(
        self, upload: dict[str, Any], parts: Sequence[dict[str, Any]], size: int
    ) -> Version | Failure:
        done = self._ask(
            self.requests.client.complete_multipart_upload,
            MultipartUpload={"Parts": parts},
            **upload,
        )
        if isinstance(done, Failure):
            return self._find(upload["Key"], size, done) if done.code == _NO_SUCH_UPLOAD else done
        etag = done.get("ETag")
        return Version(etag) if etag else self._find(upload["Key"], size, _INCOMPLETE)

    def _find(self, name: str, size: int, failure: Failure) -> Version | Failure:
        """The upload is over: its object is there, if a request whose answer was lost ended it."""
        head = self.retry.call(lambda _: self.requests.head(name))
        if isinstance(head, Failure) or head.size != size:
            return failure
        return head.version

    def _ask(self, operation: Callable[..., Any], **params: Any) -> Any:  # noqa: ANN401
        send = partial(self.requests.ask, operation, **params)
        return self.retry.call(lambda _: send())
